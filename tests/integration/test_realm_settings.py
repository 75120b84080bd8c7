"""Settings of a realm: changed by parts, checked before they are taken, and followed from then on."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from engine.egress import notice
from engine.egress.smtp import Mailer
from engine.lifecycle import settings
from engine.lifecycle.worker import Worker
from engine.outbox.mail import deliver_due
from tests.calling import Api, paths, problem
from tests.definitions import Json, definition, step
from tests.driver import drain, rows, until
from tests.factories import TestRealm, a_realm, unique
from tests.relay import Relay

OURS = {"subject": notice.SUBJECT, "body": notice.BODY}
UNTOUCHED: Json = {
    "extensions": {"workflow_publish_approval": False},
    "workflow_notice": None,
    "workflow_notice_default": OURS,
}
WORDED = {"subject": "[{{ realm }}] {{ notice }}", "body": "{{ workflow }}: {{ notice | upper }}"}


@pytest.fixture
def admin(api: Api) -> Api:
    """The administrator of a realm of the test's own."""
    return api.at(a_realm(api.realm.database))


def changed(admin: Api, **parts: Any) -> Json:
    answer = admin.patch("/settings", parts)
    assert answer.status_code == 200, answer.text
    shown: Json = answer.json()
    assert admin.get("/settings").json() == shown
    return shown


def audited(admin: Api) -> list[Json]:
    """The details of every change, the oldest first."""
    items = admin.get("/audit-events", target_id=admin.realm.id).json()["items"]
    return [event["details"] for event in reversed(items) if event["type"] == "realm.settings.changed"]


def test_a_realm_begins_without_a_policy_and_in_our_words(admin: Api) -> None:
    assert admin.get("/settings").json() == UNTOUCHED


def test_what_is_left_out_stays(admin: Api) -> None:
    policy = {"workflow_publish_approval": True}
    assert changed(admin, extensions=policy) == {**UNTOUCHED, "extensions": policy}
    assert changed(admin, workflow_notice=WORDED) == {**UNTOUCHED, "extensions": policy, "workflow_notice": WORDED}
    shown = changed(admin, workflow_notice={"subject": "{{ notice }}"})
    assert shown["workflow_notice"] == {**WORDED, "subject": "{{ notice }}"}
    shown = changed(admin, workflow_notice={"body": "{{ notice }}"})
    assert shown["workflow_notice"] == {"subject": "{{ notice }}", "body": "{{ notice }}"}
    for nothing in ({}, {"extensions": {}}, {"workflow_notice": {}}):
        assert changed(admin, **nothing) == shown
    assert changed(admin, workflow_notice=None) == {**UNTOUCHED, "extensions": policy}
    assert changed(admin, extensions={"workflow_publish_approval": False}) == UNTOUCHED


@pytest.mark.parametrize("part", ["subject", "body"])
def test_a_part_of_a_wording_that_the_realm_does_not_have_is_ours(admin: Api, part: str) -> None:
    shown = changed(admin, workflow_notice={part: WORDED[part]})
    assert shown["workflow_notice"] == {**OURS, part: WORDED[part]}


def test_a_change_is_audited_by_the_names_of_what_it_changed(admin: Api) -> None:
    changed(admin, extensions={"workflow_publish_approval": True}, workflow_notice=WORDED)
    changed(admin, extensions={"workflow_publish_approval": True}, workflow_notice=WORDED)
    changed(admin, workflow_notice={**WORDED, "body": "{{ notice }}"})
    changed(admin)
    policy, subject, body = "extensions.workflow_publish_approval", "workflow_notice.subject", "workflow_notice.body"
    assert audited(admin) == [{"changed_fields": [policy, subject, body]}, {"changed_fields": [body]}]
    (event,) = admin.get("/audit-events", target_id=admin.realm.id).json()["items"][:1]
    assert (event["actor_id"], event["target_type"]) == (admin.realm.admin, "realm")


BROKEN = {
    "another variable": "{{ password }}",
    "an attribute": "{{ realm.__class__ }}",
    "a call": "{{ realm() }}",
    "a loop": "{% for a in realm %}{{ a }}{% endfor %}",
    "arithmetic": "{{ 9 ** 9 ** 9 }}",
    "another filter": "{{ realm | safe }}",
    "an unfinished expression": "{{ realm",
    "brackets without end": "{{" + "(" * 400,
}


@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.parametrize("part", ["subject", "body"])
def test_a_template_that_breaks_a_rule_is_named_and_not_taken(admin: Api, part: str, name: str) -> None:
    before = changed(admin, workflow_notice=WORDED)
    body = {"extensions": {"workflow_publish_approval": True}, "workflow_notice": {part: BROKEN[name]}}
    answer = admin.patch("/settings", body)
    assert paths(answer) == [f"workflow_notice.{part}"]
    assert BROKEN[name] not in answer.text
    assert admin.get("/settings").json() == before, "nothing of a refused change is done"
    assert len(audited(admin)) == 1


def test_templates_have_an_end(admin: Api) -> None:
    longest = {"subject": "x" * 500, "body": "y" * 16384}
    assert changed(admin, workflow_notice=longest)["workflow_notice"] == longest
    for part, text in longest.items():
        assert paths(admin.patch("/settings", {"workflow_notice": {part: text + "x"}})) == [f"workflow_notice.{part}"]
        assert paths(admin.patch("/settings", {"workflow_notice": {part: ""}})) == [f"workflow_notice.{part}"]
    assert paths(admin.patch("/settings", {"workflow_notice": {"subject": " \n "}})) == ["workflow_notice.subject"]


STRANGE: list[tuple[Json, str]] = [
    ({"workflow_publish_approval": True}, "workflow_publish_approval"),
    ({"extensions": {"surprise": True}}, "extensions.surprise"),
    ({"extensions": None}, "extensions"),
    ({"extensions": []}, "extensions"),
    *(
        ({"extensions": {"workflow_publish_approval": value}}, "extensions.workflow_publish_approval")
        for value in (None, 1, 0, "true", [], {})
    ),
    ({"workflow_notice": "hello"}, "workflow_notice"),
    ({"workflow_notice": {"from": "a@example.org"}}, "workflow_notice.from"),
    ({"workflow_notice": {"subject": None}}, "workflow_notice.subject"),
    ({"workflow_notice": {"body": 5}}, "workflow_notice.body"),
    ({"workflow_notice_default": OURS}, "workflow_notice_default"),
]


@pytest.mark.parametrize(("body", "path"), STRANGE, ids=str)
def test_a_member_that_is_not_one_or_is_of_another_type_is_refused(admin: Api, body: Json, path: str) -> None:
    assert paths(admin.patch("/settings", body)) == [path]
    assert admin.get("/settings").json() == UNTOUCHED


def test_settings_are_read_and_changed_by_those_who_may_change_them(admin: Api) -> None:
    acme = admin.realm
    auditor, keeper = (
        admin.by(acme.holder(role))
        for role in (acme.roles["realm-auditor"], acme.role(None, "realm.settings.write", boundary="realm"))
    )
    for answer in (auditor.get("/settings"), auditor.patch("/settings", {"workflow_notice": WORDED})):
        problem(answer, 403, "forbidden")
    assert keeper.patch("/settings", {"workflow_notice": WORDED}).status_code == 200
    machine = admin.by(acme.principal(acme.role(None, "realm.settings.write", boundary="realm")))
    assert machine.get("/settings").json()["workflow_notice"] == WORDED
    problem(machine.patch("/settings", {"workflow_notice": None}), 403, "forbidden")


# What they do


def test_the_policy_is_for_workflows_made_under_it_and_for_no_others(admin: Api) -> None:
    def made(**members: bool) -> str:
        return str(admin.post("/workflows", {"name": unique("workflow"), **members}).json()["id"])

    before = made()
    changed(admin, extensions={"workflow_publish_approval": True})
    under, asking_for_none = made(), made(requires_approval=False)
    changed(admin, extensions={"workflow_publish_approval": False})
    behind = made()
    for workflow_id, needs_approval in ((before, False), (under, True), (asking_for_none, True), (behind, False)):
        assert admin.get(f"/workflows/{workflow_id}").json()["requires_approval"] is needs_approval
        admin.post(f"/workflows/{workflow_id}/revisions", {"definition": definition()})
        published = admin.post(f"/workflows/{workflow_id}/revisions/1/publish")
        assert published.status_code == (403 if needs_approval else 200)


def test_another_realm_keeps_its_own(admin: Api, api: Api) -> None:
    changed(admin, extensions={"workflow_publish_approval": True}, workflow_notice=WORDED)
    assert api.at(a_realm(api.realm.database)).get("/settings").json() == UNTOUCHED


def test_a_notice_that_is_queued_goes_out_in_the_words_of_the_moment(admin: Api, worker: Worker) -> None:
    acme, relay, workflow = admin.realm, Relay.away(), unique("Onboarding")
    telling = acme.published(definition(step("notify", notice="access_granted", recipients=...)), workflow)
    with relay.open():
        for words in (WORDED, None):
            acme.run(telling, acme.user())
            drain(worker, acme)
            changed(admin, workflow_notice=words)
            assert deliver_due(acme.database, Mailer(relay.settings), relay.settings) == 1
    theirs, ours = relay.took
    (realm,) = rows(acme.database, "SELECT name FROM realms WHERE id = :realm", realm=acme.id)
    assert theirs["Subject"] == f"[{realm.name}] Access has been granted"
    assert theirs.get_content().strip() == f"{workflow}: ACCESS HAS BEEN GRANTED"
    assert ours["Subject"] == f"{realm.name}: Access has been granted"
    assert "Hello," in ours.get_content()


# At the same time


def test_of_two_who_change_different_parts_at_once_neither_undoes_the_other(admin: Api) -> None:
    acme, answers = admin.realm, list[int]()
    other = threading.Thread(
        target=lambda: answers.append(admin.patch("/settings", {"workflow_notice": WORDED}).status_code)
    )
    with acme.database.begin() as connection:
        settings.change(connection, acme.cause, extensions={"workflow_publish_approval": True})
        other.start()
        until(lambda: waiting(acme))
    other.join(20)
    assert answers == [200]
    shown = admin.get("/settings").json()
    assert (shown["extensions"], shown["workflow_notice"]) == ({"workflow_publish_approval": True}, WORDED)


def waiting(acme: TestRealm) -> int:
    query = (
        "SELECT count(*) AS count FROM pg_stat_activity WHERE datname = current_database()"
        " AND wait_event_type = 'Lock' AND query LIKE '%FROM realms%'"
    )
    return int(rows(acme.database, query)[0].count)


def test_work_in_the_realm_waits_for_nobody_who_is_changing_settings(admin: Api) -> None:
    acme = admin.realm
    with acme.database.begin() as connection:
        settings.change(connection, acme.cause, extensions={"workflow_publish_approval": True})
        assert acme.organization()
        assert acme.user()


def test_a_workflow_made_while_the_policy_changes_follows_the_new_one(admin: Api) -> None:
    """It waits for the change that began before it: a reading of a moment ago would let it be published unseen."""
    acme = admin.realm
    made: list[Json] = []
    making = threading.Thread(target=lambda: made.append(admin.post("/workflows", {"name": unique("flow")}).json()))
    with acme.database.begin() as connection:
        settings.change(connection, acme.cause, extensions={"workflow_publish_approval": True})
        making.start()
        until(lambda: waiting(acme))
    making.join(20)
    assert [each["requires_approval"] for each in made] == [True]
