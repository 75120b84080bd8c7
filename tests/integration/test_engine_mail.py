"""Notices as mail: in the realm's words, once, whenever the relay is there to take them."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator

import pytest

from db.session import Database
from engine.core.failpoints import arm
from engine.egress.smtp import Mailer
from engine.outbox.mail import deliver_due
from tests.definitions import definition, step
from tests.driver import AnyRow, drain, emptied, many_runs, owner, rows, until, working
from tests.factories import TestRealm, a_realm, unique
from tests.relay import Relay


@pytest.fixture
def acme(module_database: Database) -> TestRealm:
    return a_realm(emptied(module_database))


@pytest.fixture
def away() -> Relay:
    return Relay.away()


@pytest.fixture
def relay(away: Relay) -> Iterator[Relay]:
    with away.open():
        yield away


def queued(acme: TestRealm, *subjects: str, workflow: str | None = None) -> None:
    """A notice of access for each of them, queued by a run."""
    told = acme.published(definition(step("notify", notice="access_granted", recipients=...)), workflow)
    many_runs(acme, told, subjects)
    with working(acme.database) as worker:
        drain(worker, acme)


def messages(acme: TestRealm) -> list[AnyRow]:
    return rows(acme.database, "SELECT * FROM messages WHERE realm_id = :realm ORDER BY id", realm=acme.id)


def deliver(acme: TestRealm, relay: Relay) -> int:
    return deliver_due(acme.database, Mailer(relay.settings), relay.settings)


def due_now(acme: TestRealm) -> None:
    owner(
        acme.database,
        "UPDATE messages SET due_at = now() WHERE realm_id = :realm AND due_at IS NOT NULL",
        realm=acme.id,
    )


def test_a_notice_goes_out_in_the_words_of_the_realm_s_template_at_that_moment(acme: TestRealm, relay: Relay) -> None:
    ada = acme.user(unique("ada"))
    workflow = unique("Onboarding")
    queued(acme, ada, workflow=workflow)
    owner(
        acme.database,
        "UPDATE realms SET notice_subject = :subject, notice_body = :body WHERE id = :realm",
        subject="[{{ realm }}] {{ notice }}",
        body="{{ workflow }} at {{ time }}: {{ notice | upper }}",
        realm=acme.id,
    )
    with working(acme.database, mail=relay.settings) as worker:
        until(lambda: worker.run_pass().delivered)
    (row,) = messages(acme)
    (message,) = relay.took
    (realm,) = rows(acme.database, "SELECT name FROM realms WHERE id = :realm", realm=acme.id)
    assert message["Subject"] == f"[{realm.name}] Access has been granted"
    when = row.created_at.strftime("%Y-%m-%d %H:%M UTC")
    assert message.get_content().strip() == f"{workflow} at {when}: ACCESS HAS BEEN GRANTED"
    (user,) = rows(acme.database, "SELECT email FROM users WHERE id = :ada", ada=ada)
    assert (message["From"], message["To"]) == ("Tenure <tenure@x.example>", user.email)
    assert message["Message-ID"] == f"<{row.id}@x.example>"
    assert (row.state, row.attempts, row.last_error, row.due_at) == ("sent", 1, None, None)
    assert row.ended_at is not None


def test_a_realm_without_a_template_says_it_in_ours(acme: TestRealm, relay: Relay) -> None:
    queued(acme, acme.user())
    assert deliver(acme, relay) == 1
    assert "Access has been granted." in relay.took[0].get_content()


def test_workers_that_deliver_at_once_send_every_message_once(acme: TestRealm, relay: Relay) -> None:
    queued(acme, *acme.users(50))
    threads = [threading.Thread(target=lambda: [deliver(acme, relay) for _ in range(3)]) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Counter(row.state for row in messages(acme)) == {"sent": 50}
    assert set(Counter(message["To"] for message in relay.took).values()) == {1}
    assert len(relay.took) == 50


def test_mail_goes_out_as_fast_as_the_relay_takes_it(acme: TestRealm, relay: Relay) -> None:
    """A batch has twenty messages; nobody waits for a poll between two of them."""
    queued(acme, *acme.users(70))
    with working(acme.database, mail=relay.settings, poll_interval=15) as worker:
        began = time.monotonic()
        while len(relay.took) < 70:
            worker.run_pass()
            worker.wait(threading.Event())
            assert time.monotonic() - began < 10


def test_a_relay_that_is_away_is_tried_again_later(acme: TestRealm, away: Relay) -> None:
    queued(acme, acme.user())
    assert deliver(acme, away) == 0
    (row,) = messages(acme)
    assert (row.state, row.attempts, row.last_error) == ("queued", 1, "network_error")
    left = rows(acme.database, "SELECT extract(epoch FROM due_at - clock_timestamp())::float AS left FROM messages")[
        0
    ].left
    assert 50 < left <= 72
    with away.open():
        assert deliver(acme, away) == 0  # not due yet
        due_now(acme)
        assert deliver(acme, away) == 1
    (row,) = messages(acme)
    assert (row.state, row.attempts, row.last_error) == ("sent", 2, None)


def test_a_message_is_given_up_after_ten_tries(acme: TestRealm, away: Relay) -> None:
    queued(acme, acme.user())
    owner(acme.database, "UPDATE messages SET attempts = 8")
    for state in ("queued", "failed"):
        deliver(acme, away)
        assert [row.state for row in messages(acme)] == [state]
        due_now(acme)
    (row,) = messages(acme)
    assert (row.attempts, row.last_error) == (10, "network_error")
    with away.open():
        assert deliver(acme, away) == 0


def test_a_recipient_who_was_deleted_meanwhile_is_not_written_to(acme: TestRealm, relay: Relay) -> None:
    gone, here = acme.users(2)
    queued(acme, gone, here)
    owner(acme.database, "UPDATE users SET state = 'deleted' WHERE id = :gone", gone=gone)
    assert deliver(acme, relay) == 1
    assert {row.recipient_id: (row.state, row.last_error) for row in messages(acme)} == {
        gone: ("failed", "subject_missing"),
        here: ("sent", None),
    }


def test_a_suspended_subject_is_still_told(acme: TestRealm, relay: Relay) -> None:
    queued(acme, acme.user(state="suspended"))
    assert deliver(acme, relay) == 1


@pytest.mark.parametrize(
    ("answer", "state", "category"),
    [("451 try again", "queued", "network_error"), ("554 no", "queued", "network_error")],
)
def test_a_relay_that_will_not_take_a_message_is_asked_again(
    acme: TestRealm, relay: Relay, answer: str, state: str, category: str
) -> None:
    queued(acme, acme.user())
    relay.refusal = answer
    assert deliver(acme, relay) == 0
    assert [(row.state, row.last_error) for row in messages(acme)] == [(state, category)]


def test_a_mailbox_that_does_not_exist_is_given_up_and_the_others_are_written_to(acme: TestRealm, relay: Relay) -> None:
    queued(acme, acme.user(unique("nobody")), *acme.users(3))
    assert deliver(acme, relay) == 3
    assert Counter((row.state, row.last_error) for row in messages(acme)) == {
        ("failed", "validation_failed"): 1,
        ("sent", None): 3,
    }


def test_a_message_that_we_cannot_write_holds_up_none_behind_it(acme: TestRealm, relay: Relay) -> None:
    queued(acme, *acme.users(3))
    owner(acme.database, "UPDATE messages SET notice = 'unheard_of' WHERE id = (SELECT min(id) FROM messages)")
    assert deliver(acme, relay) == 2
    assert Counter((row.state, row.last_error) for row in messages(acme)) == {("queued", "error"): 1, ("sent", None): 2}


def test_a_message_whose_worker_died_is_sent_again_under_the_same_id(acme: TestRealm, relay: Relay) -> None:
    queued(acme, acme.user())
    arm("mail.after_claim=raise")
    try:
        with pytest.raises(RuntimeError):
            deliver(acme, relay)
    finally:
        arm("")
    (row,) = messages(acme)
    assert (row.state, row.attempts) == ("queued", 1)
    assert deliver(acme, relay) == 0  # it is in somebody's hands until then
    due_now(acme)
    arm("mail.after_send=raise")
    try:
        assert deliver(acme, relay) == 0
    finally:
        arm("")
    due_now(acme)
    assert deliver(acme, relay) == 1
    assert [message["Message-ID"] for message in relay.took] == [f"<{row.id}@x.example>"] * 2


def test_without_a_relay_messages_wait(acme: TestRealm) -> None:
    queued(acme, acme.user())
    with working(acme.database) as worker:
        worker.run_pass()
    assert [(row.state, row.attempts) for row in messages(acme)] == [("queued", 0)]
