"""The words of a notice, and templates that try to do more than that."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from email import message_from_bytes
from email.policy import default

import pytest

from engine.core.errors import Refused
from engine.egress.message import compose
from engine.egress.notice import BODY, SUBJECT, WORDING, Notice, check_template, render

AT = datetime(2026, 10, 10, 12, 10, tzinfo=UTC)
CODES = [
    *("welcome", "access_granted", "access_expiring", "access_removed"),
    *("approval_requested", "account_suspended", "offboarding"),
]


def notice(code: str = "welcome", **words: str) -> Notice:
    return render(code, **{"realm": "Acme", "workflow": "Onboarding", **words}, at=AT)


def test_every_notice_of_the_source_has_words() -> None:
    assert sorted(WORDING) == sorted(CODES)


@pytest.mark.parametrize("code", CODES)
def test_the_default_template_names_realm_workflow_notice_and_time(code: str) -> None:
    rendered = notice(code)
    assert rendered.subject == f"Acme: {WORDING[code]}"
    for word in ("Acme", "Onboarding", WORDING[code], "2026-10-10 12:10 UTC"):
        assert word in rendered.body


def test_the_default_template_passes_its_own_check() -> None:
    check_template(SUBJECT, BODY)


def test_a_realm_may_choose_by_notice_and_change_case() -> None:
    body = "{% if notice == 'x' %}no{% elif 'access' in notice %}{{ realm|upper ~ '!' }}{% else %}{{ time }}{% endif %}"
    check_template("{{ workflow|title }}", body)
    assert notice("access_granted", subject="{{ workflow }}", body=body).body == "2026-10-10 12:10 UTC"


ATTACKS = [
    "{{ ''.__class__.__mro__ }}",
    "{{ realm.__class__ }}",
    "{{ realm['__class__'] }}",
    "{{ realm.upper() }}",
    "{{ range(10) }}",
    "{% for a in range(99999) %}{% for b in range(99999) %}x{% endfor %}{% endfor %}",
    "{% for a in realm %}x{% endfor %}",
    "{{ 'x' * 999999999 }}",
    "{{ 9 ** 9 ** 9 }}",
    "{{ realm|center(999999999) }}",
    "{{ realm|replace('', 'xxxx') }}",
    "{{ realm|attr('__class__') }}",
    "{{ '%999999999d'|format(1) }}",
    "{% set x = realm ~ realm %}{{ x }}",
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "{% include 'x' %}",
    "{% import 'x' as y %}",
    "{% extends 'x' %}",
    "{% block a %}x{% endblock %}",
    "{% filter upper %}x{% endfilter %}",
    "{{ cycler }}",
    "{{ self }}",
    "{{ config }}",
    "{{ email }}",
    "{{ lipsum(999999) }}",
    "{{ realm|lower(1) }}",
    "{{ realm is callable }}",
    "{{ realm",
    "{% if realm %}",
    "{{ " + "(" * 4000 + "realm" + ")" * 4000 + " }}",
    "{{ " + "not " * 3000 + "realm }}",
    "{% if realm %}" * 300 + "{% endif %}" * 300,
    "{{ realm|upper }}" * 900,
    "x" * (16 * 1024 + 1),
]


@pytest.mark.parametrize("template", ATTACKS)
def test_a_template_that_does_more_than_show_words_is_refused_at_once(template: str) -> None:
    started = time.monotonic()
    with pytest.raises(Refused) as refusal:
        check_template(SUBJECT, template)
    assert (refusal.value.category, refusal.value.path) == ("validation_failed", "body")
    assert time.monotonic() - started < 20  # the machine is shared; what is let loose takes minutes
    with pytest.raises(Refused) as refusal:
        check_template(template, BODY)
    assert refusal.value.path == "subject"


def test_what_passed_the_check_is_written_however_long_the_names_are() -> None:
    body = "{{ realm|upper }}\n" * 400
    check_template(SUBJECT, body)
    assert len(render("welcome", realm="ΐ" * 5000, workflow="w", at=AT, subject=SUBJECT, body=body).body) < 128 * 1024


def test_an_empty_subject_is_refused() -> None:
    with pytest.raises(Refused, match="empty"):
        check_template(" {{ ' ' }} ", BODY)


EVIL = "Acme\r\nBcc: all@acme.example\r\n\r\nbody\u2028\u202e\x00\ud800"


def test_no_name_and_no_template_can_add_a_header() -> None:
    for rendered in (
        render("welcome", realm=EVIL, workflow=EVIL, at=AT),
        render(
            "welcome", realm="Acme", workflow="w", at=AT, subject="a\r\nBcc: x@y.example\n{{ '\\nCc: b@c.example' }}"
        ),
    ):
        message = compose(rendered, message_id="ntf_1", sender="t@acme.example", recipient="u@x.example", at=AT)
        parsed = message_from_bytes(message.as_bytes(), policy=default)
        assert parsed["Bcc"] is None
        assert parsed["Cc"] is None
        assert "\n" not in rendered.subject
        assert len(parsed["To"].addresses) == 1


@pytest.mark.parametrize(
    "address",
    [
        "",
        "u",
        "u@x.example\r\nBcc: v@x.example",
        "u@x.example, v@x.example",
        "u v@x.example",
        "<u@x.example>",
        "@",
        "u@",
    ],
)
def test_what_is_not_one_address_is_refused(address: str) -> None:
    with pytest.raises(Refused) as refusal:
        compose(notice(), message_id="ntf_1", sender="t@acme.example", recipient=address, at=AT)
    assert refusal.value.category == "validation_failed"


def test_a_message_says_that_a_machine_sent_it_and_keeps_its_id() -> None:
    message = compose(
        notice(realm="Zoë"), message_id="ntf_1", sender="Tenure <t@acme.example>", recipient="u@x.example", at=AT
    )
    parsed = message_from_bytes(message.as_bytes(), policy=default)
    assert parsed["Message-ID"] == "<ntf_1@acme.example>"
    assert parsed["From"] == "Tenure <t@acme.example>"
    assert parsed["Auto-Submitted"] == "auto-generated"
    assert parsed["Subject"] == f"Zoë: {WORDING['welcome']}"
    assert "Realm: Zoë" in parsed.get_content()
