"""A run whose own transaction fails, and a database that goes away: the one is at fault alone, of the other nobody is."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager

import pytest
from sqlalchemy.exc import IntegrityError, OperationalError

from db.session import Database
from engine.core import leases
from engine.core.errors import Unavailable
from engine.core.failpoints import arm
from engine.core.faults import message_of
from engine.core.leases import Lease
from engine.core.settings import WorkerSettings
from engine.lifecycle import rounds
from engine.lifecycle.calls import Answered
from engine.lifecycle.guilty import record_guilty
from engine.lifecycle.moves import MESSAGE_LIMIT
from engine.lifecycle.plans import Plans
from engine.lifecycle.worker import Worker
from tests.definitions import Json, definition, event, step
from tests.driver import (
    CUT_OFF,
    age,
    attempts_of,
    constraint,
    drain,
    emptied,
    many_runs,
    outcome,
    owner,
    rows,
    run_of,
    trail_of,
    trigger,
    until,
    wake,
    working,
)
from tests.endpoints import Endpoint
from tests.factories import TestRealm, a_realm

TEXTS = {
    "NUL": "before\x00after",
    "half of a surrogate pair": "before\ud800after",
    "ten megabytes": "x" * 10_000_000,
    "no text": "",
}


@pytest.fixture
def acme(module_database: Database) -> TestRealm:
    return a_realm(emptied(module_database))


@pytest.fixture
def worker(module_database: Database) -> Iterator[Worker]:
    with working(module_database, tenant_batch_share=50) as worker:
        yield worker


def cut_off(acme: TestRealm, table: str, when: str) -> AbstractContextManager[None]:
    """For real: the database cuts the connection of whoever writes such a row."""
    return trigger(acme.database, f"BEFORE INSERT OR UPDATE ON {table}", CUT_OFF, when)


def settled(acme: TestRealm) -> None:
    """The events of what was made so far are history: the next pass has runs to advance and nothing else."""
    owner(acme.database, "UPDATE outbox_events SET dispatched_at = now() WHERE realm_id = :realm", realm=acme.id)


# a guilty run


def test_one_run_that_breaks_a_constraint_fails_alone_and_the_other_forty_nine_go_on(
    acme: TestRealm, worker: Worker, caplog: pytest.LogCaptureFixture
) -> None:
    sales = acme.organization()
    team = acme.group(sales)
    members = acme.users(50, sales)
    guilty_user = members[25]
    steps = [
        step("add_to_group", id="join", group_id=team, organization_id=...),
        step("notify", id="tell", recipients=...),
    ]
    runs = many_runs(acme, acme.published(definition(*steps)), members, sales)
    guilty = next(run for run in runs if run_of(acme, run).subject_id == guilty_user)
    settled(acme)
    with constraint(acme.database, "group_members", f"user_id <> '{guilty_user}'"):
        report = worker.run_pass()
        assert (report.claimed, report.errors) == (50, 1)
        assert Counter(run.state for run in report.ended) == {"succeeded": 49}
        assert report.failed_attempts == {"error": 1}
        assert outcome(acme, guilty) == ("running", "error")
        (attempt,) = attempts_of(acme, guilty)
        assert attempt.error_message == "the step failed in its own transaction: CheckViolation 23514"
        left = run_of(acme, guilty).due_at - attempt.finished_at
        assert 30 <= left.total_seconds() <= 36
        for _ in range(2):
            wake(acme, guilty)
            drain(worker, acme)
    assert outcome(acme, guilty) == ("failed", "retries_exhausted")
    assert [row.error_category for row in attempts_of(acme, guilty)] == ["error"] * 3
    assert trail_of(acme, guilty)[-3:] == ["workflow.step.failed", "workflow.run.failed", "workflow.run.failed"]
    joined = rows(acme.database, "SELECT user_id FROM group_members WHERE group_id = :team", team=team)
    assert sorted(row.user_id for row in joined) == sorted(set(members) - {guilty_user})
    effects = rows(
        acme.database, "SELECT 1 FROM workflow_step_attempts WHERE realm_id = :r AND state = 'succeeded'", r=acme.id
    )
    assert len(effects) == 98
    # What the database said of the row is for nobody's eyes: logs are read by every operator.
    assert "CheckViolation 23514" in caplog.text
    assert "Failing row" not in caplog.text
    assert guilty_user not in caplog.text


def test_a_guilty_run_that_is_right_again_goes_on(acme: TestRealm, worker: Worker) -> None:
    ada = acme.user()
    run, _ = acme.run(acme.published(definition(step("suspend_user"))), ada)
    with constraint(acme.database, "users", f"id <> '{ada}' OR state = 'active'"):
        drain(worker, acme)
        assert outcome(acme, run) == ("running", "error")
    wake(acme, run)
    drain(worker, acme)
    assert outcome(acme, run) == ("succeeded", None)
    assert [(row.attempt, row.state) for row in attempts_of(acme, run)] == [(1, "failed"), (2, "succeeded")]


def test_an_error_in_a_decision_is_the_run_s_own(acme: TestRealm, worker: Worker) -> None:
    workflow = acme.published(definition(step("wait")))
    spoiled, sound = many_runs(acme, workflow, acme.users(2))
    drain(worker, acme)
    owner(acme.database, "UPDATE workflow_step_attempts SET input = '{}' WHERE run_id = :run", run=spoiled)
    for run in (spoiled, sound):
        age(acme, run, hours=1)
    drain(worker, acme)
    assert outcome(acme, spoiled) == ("failed", "retries_exhausted")
    (attempt,) = attempts_of(acme, spoiled)
    assert (attempt.error_category, attempt.error_message) == (
        "error",
        "the step failed in its own transaction: KeyError",
    )
    assert outcome(acme, sound) == ("succeeded", None)


def test_a_write_that_hits_fewer_rows_than_it_should_takes_the_whole_step_back(acme: TestRealm, worker: Worker) -> None:
    role = acme.role(None, "realm.users.read", boundary="realm")
    ada = acme.holder(role)
    run, _ = acme.run(acme.published(definition(step("remove_role", role_id=role))), ada)
    with trigger(acme.database, "BEFORE DELETE ON role_assignments", "RETURN NULL;"):
        drain(worker, acme)
    assert outcome(acme, run) == ("running", "error")
    assert trail_of(acme, run, "") == ["workflow.run.started", "workflow.step.failed"]
    assert attempts_of(acme, run)[0].error_message.endswith("ShortWrite")


def test_a_failure_that_cannot_be_recorded_puts_its_run_off_and_is_counted(acme: TestRealm, worker: Worker) -> None:
    unspeakable, _ = acme.run(acme.published(definition(step("suspend_user", id="unspeakable"))), acme.user())
    sound, _ = acme.run(acme.published(definition(step("suspend_user"))), acme.user())
    with constraint(acme.database, "workflow_step_attempts", "step_id <> 'unspeakable'"):
        for count in (1, 2, 3):
            drain(worker, acme)
            row = run_of(acme, unspeakable)
            assert (row.state, row.interruptions, row.lease_owner) == ("pending", count, None)
            assert attempts_of(acme, unspeakable) == []
            wake(acme, unspeakable)
        assert outcome(acme, sound) == ("succeeded", None)
    drain(worker, acme)
    assert outcome(acme, unspeakable) == ("succeeded", None)
    assert run_of(acme, unspeakable).interruptions == 0


def interrupted(acme: TestRealm, run_id: str, times: int) -> None:
    """So many workers or transactions in a row have come to grief on the run."""
    owner(acme.database, "UPDATE workflow_runs SET interruptions = :times WHERE id = :run", times=times, run=run_id)


def test_a_run_that_could_not_be_recorded_ten_times_is_given_up(acme: TestRealm, worker: Worker) -> None:
    run, _ = acme.run(acme.published(definition(step("suspend_user"))), acme.user())
    interrupted(acme, run, 8)
    with constraint(acme.database, "workflow_step_attempts", "state <> 'succeeded' AND error_category <> 'error'"):
        drain(worker, acme)
        assert (run_of(acme, run).state, run_of(acme, run).interruptions) == ("pending", 9)
        wake(acme, run)
        drain(worker, acme)
    assert outcome(acme, run) == ("failed", "retries_exhausted")
    assert [row.error_category for row in attempts_of(acme, run)] == ["retries_exhausted"]


def test_a_run_whose_attempts_cannot_be_written_at_all_is_given_up_without_one(acme: TestRealm, worker: Worker) -> None:
    run, _ = acme.run(acme.published(definition(step("suspend_user", id="unspeakable"))), acme.user())
    interrupted(acme, run, 9)
    with constraint(acme.database, "workflow_step_attempts", "step_id <> 'unspeakable'"):
        drain(worker, acme)
        assert run_of(acme, run).state == "pending"
        wake(acme, run)
        drain(worker, acme)
    assert outcome(acme, run) == ("failed", "retries_exhausted")
    assert attempts_of(acme, run) == []
    assert trail_of(acme, run) == ["workflow.run.started", "workflow.run.failed", "workflow.run.failed"]


def test_a_compensation_that_cannot_be_written_at_all_is_left_to_an_administrator(
    acme: TestRealm, worker: Worker
) -> None:
    sales = acme.organization()
    (ada,) = acme.users(1, sales)
    steps = [
        step("add_to_group", group_id=acme.group(sales), organization_id=...),
        step("wait", id="b"),
        step("notify", id="c", recipients="approvers"),
    ]
    run, _ = acme.run(acme.published(definition(*steps)), ada, sales)
    drain(worker, acme)
    age(acme, run, hours=1)
    on = "BEFORE UPDATE OF compensation_attempts ON workflow_step_attempts"
    with trigger(acme.database, on, "RAISE EXCEPTION 'kept';", "OLD.compensation_strategy = 'undo'"):
        drain(worker, acme)
        assert run_of(acme, run).state == "compensating"
        for times in (9, 10):
            interrupted(acme, run, times)
            wake(acme, run)
            drain(worker, acme)
    assert outcome(acme, run) == ("compensation_failed", "no_recipients")
    assert trail_of(acme, run)[-1] == "workflow.run.compensation_failed"


# error texts


def in_hand(acme: TestRealm, run_id: str) -> Lease:
    with acme.database.begin() as connection:
        (lease,) = leases.claim(connection, "me", WorkerSettings(), batch=1, after="")
    assert lease.run_id == run_id
    return lease


def told(text: str) -> str:
    """What may be kept of a text."""
    clean = text.replace("\x00", "").replace("\ud800", "?")
    return clean if len(clean) <= MESSAGE_LIMIT else clean[: MESSAGE_LIMIT - 1] + "…"


def calling(endpoint: Endpoint, **members: object) -> Json:
    return step("call_webhook", id="sync", **{"subscription_id": endpoint.subscription, "timeout_ms": ...} | members)


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
def test_any_error_text_can_be_recorded(acme: TestRealm, endpoint: Endpoint, text: str) -> None:
    run, _ = acme.run(acme.published(definition(calling(endpoint, retry={"max_attempts": 1}))), acme.user())
    lease, plans = in_hand(acme, run), Plans()
    (move,) = rounds.advance(acme.database, "me", plans, [lease], last=False, room_for_calls=1)
    assert move.call is not None
    answered = Answered(move.call, Unavailable("error", text))
    assert len(rounds.record_answers(acme.database, "me", plans, {lease: answered})) == 1
    (attempt,) = attempts_of(acme, run)
    assert (attempt.error_category, attempt.error_message) == ("error", told(text))
    row = run_of(acme, run)
    assert row.state == "compensating"
    assert len(row.last_error) <= MESSAGE_LIMIT


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
def test_any_error_text_of_a_compensation_can_be_recorded(acme: TestRealm, endpoint: Endpoint, text: str) -> None:
    steps = [calling(endpoint, compensate=True), step("notify", id="b", recipients="approvers")]
    run, _ = acme.run(acme.published(definition(*steps)), acme.user())
    lease, plans = in_hand(acme, run), Plans()
    (move,) = rounds.advance(acme.database, "me", plans, [lease], last=False, room_for_calls=1)
    assert move.call is not None
    rounds.record_answers(acme.database, "me", plans, {lease: Answered(move.call, None, 204)})
    rounds.advance(acme.database, "me", plans, [lease], last=False, room_for_calls=1)  # fails
    (move,) = rounds.advance(acme.database, "me", plans, [lease], last=False, room_for_calls=1)
    assert move.call is not None
    assert move.call.action == "compensate"
    rounds.record_answers(acme.database, "me", plans, {lease: Answered(move.call, Unavailable("timeout", text))})
    result = attempts_of(acme, run)[0].compensation_result
    assert result == {"category": "timeout", "message": told(text)}


def test_an_unexpected_error_is_recorded_by_its_kind_however_it_is_named(acme: TestRealm) -> None:
    strange: type[Exception] = type("Stränge-Error;" + "x" * 100_000, (Exception,), {})
    run, _ = acme.run(acme.published(definition(step("suspend_user"))), acme.user())
    (move,) = record_guilty(acme.database, "me", Plans(), in_hand(acme, run), strange("sesame"))
    assert move.failed_attempt == "error"
    (attempt,) = attempts_of(acme, run)
    assert "StrngeErrorxxx" in attempt.error_message
    assert "sesame" not in attempt.error_message
    assert len(attempt.error_message) <= MESSAGE_LIMIT


def test_nothing_is_kept_of_what_an_error_of_the_database_quotes(acme: TestRealm) -> None:
    with pytest.raises(IntegrityError) as error:
        owner(acme.database, "INSERT INTO realms (id, name) VALUES ('sesame', NULL)")
    assert "sesame" in str(error.value)
    assert message_of(error.value) == "NotNullViolation 23502"


# breaking off at a failpoint


@pytest.mark.parametrize(
    "place",
    ["round.after_load", "round.after_decide", "round.after_effects", "round.before_commit", "round.after_commit"],
)
def test_a_round_that_breaks_off_anywhere_repeats_no_effect(acme: TestRealm, worker: Worker, place: str) -> None:
    sales = acme.organization()
    team = acme.group(sales)
    steps = [
        step("add_to_group", id="join", group_id=team, organization_id=...),
        step("notify", id="tell", recipients=...),
    ]
    runs = many_runs(acme, acme.published(definition(*steps)), acme.users(5, sales), sales)
    arm(f"{place}=raise")
    try:
        drain(worker, acme)
    finally:
        arm("")
    assert [outcome(acme, run) for run in runs] == [("succeeded", None)] * 5
    assert all([row.attempt for row in attempts_of(acme, run)] == [1, 1] for run in runs)
    assert len(rows(acme.database, "SELECT 1 FROM messages WHERE realm_id = :realm", realm=acme.id)) == 5


@pytest.mark.parametrize("place", ["answer.before_commit", "answer.after_commit"])
def test_an_answer_whose_record_breaks_off_is_recorded_once_or_the_call_made_again_under_its_key(
    acme: TestRealm, worker: Worker, endpoint: Endpoint, place: str
) -> None:
    run, _ = acme.run(
        acme.published(definition(calling(endpoint), step("notify", id="b", recipients=...))), acme.user()
    )
    arm(f"{place}=raise")
    try:
        drain(worker, acme)
    finally:
        arm("")
    assert outcome(acme, run) == ("running", "error")
    wake(acme, run)
    drain(worker, acme)
    assert outcome(acme, run) == ("succeeded", None)
    assert {call.headers["Idempotency-Key"] for call in endpoint.calls} == {f"{run}.sync"}
    assert len(endpoint.calls) == (2 if place == "answer.before_commit" else 1)
    assert len(rows(acme.database, "SELECT 1 FROM messages WHERE run_id = :run", run=run)) == 1


@pytest.mark.parametrize("place", ["call.before_send", "call.after_send"])
def test_a_call_that_breaks_off_in_our_own_code_is_an_error_and_tried_again(
    acme: TestRealm, worker: Worker, endpoint: Endpoint, place: str
) -> None:
    run, _ = acme.run(acme.published(definition(calling(endpoint))), acme.user())
    arm(f"{place}=raise")
    try:
        drain(worker, acme)
    finally:
        arm("")
    assert outcome(acme, run) == ("running", "error")
    wake(acme, run)
    drain(worker, acme)
    assert outcome(acme, run) == ("succeeded", None)
    assert len(endpoint.calls) == (1 if place == "call.before_send" else 2)


# a database that goes away


def test_a_batch_that_the_database_left_is_advanced_by_the_next_pass_and_nothing_is_marked_failed(
    acme: TestRealm, worker: Worker
) -> None:
    users = acme.users(5)
    runs = many_runs(
        acme, acme.published(definition(step("suspend_user"), step("notify", id="b", recipients=...))), users
    )
    settled(acme)
    with (
        cut_off(acme, "workflow_step_attempts", f"NEW.run_id = '{runs[2]}'"),
        pytest.raises(OperationalError),
    ):
        worker.run_pass()
    drain(worker, acme, within=5)
    assert [outcome(acme, run) for run in runs] == [("succeeded", None)] * 5
    assert all([row.attempt for row in attempts_of(acme, run)] == [1, 1] for run in runs)


def test_runs_that_were_in_hand_when_the_database_left_are_not_forgotten(acme: TestRealm, worker: Worker) -> None:
    """One run breaks a constraint, so the batch is done run by run; there the database goes away."""
    users = acme.users(5)
    runs = many_runs(
        acme, acme.published(definition(step("suspend_user"), step("notify", id="b", recipients=...))), users
    )
    subjects = [run_of(acme, run).subject_id for run in runs]
    settled(acme)
    with (
        constraint(acme.database, "users", f"id <> '{subjects[0]}' OR state = 'active'"),
        cut_off(acme, "workflow_step_attempts", f"NEW.run_id = '{runs[3]}'"),
        pytest.raises(OperationalError),
    ):
        worker.run_pass()
    drain(worker, acme, within=5)  # well within the lease that the worker goes on renewing
    assert outcome(acme, runs[0]) == ("running", "error")
    assert [outcome(acme, run) for run in runs[1:]] == [("succeeded", None)] * 4
    assert all([row.attempt for row in attempts_of(acme, run)] == [1, 1] for run in runs[1:])


def test_a_run_whose_answer_was_recorded_is_not_forgotten_when_the_dispatch_fails(
    acme: TestRealm, worker: Worker, endpoint: Endpoint
) -> None:
    endpoint.hold.clear()
    listening = acme.published(definition(step("end"), triggers=[event("user.suspended")]))
    run, _ = acme.run(
        acme.published(definition(calling(endpoint), step("notify", id="b", recipients=...))), acme.user()
    )
    until(lambda: worker.run_pass() and endpoint.calls)
    endpoint.hold.set()
    until(lambda: worker._callers.has_answers)
    with cut_off(acme, "workflow_runs", f"NEW.workflow_id = '{listening}'"):
        acme.user(state="suspended")
        with pytest.raises(OperationalError):
            worker.run_pass()
        assert [row.state for row in attempts_of(acme, run)] == ["succeeded"]
    drain(worker, acme, within=5)
    assert outcome(acme, run) == ("succeeded", None)
    assert len(endpoint.calls) == 1


def test_an_answer_is_kept_while_the_database_is_away(acme: TestRealm, worker: Worker, endpoint: Endpoint) -> None:
    run, _ = acme.run(
        acme.published(definition(calling(endpoint), step("notify", id="b", recipients=...))), acme.user()
    )
    with cut_off(
        acme,
        "workflow_step_attempts",
        "NEW.step_id = 'sync' AND NEW.state <> 'started'",
    ):
        worker.run_pass()
        until(lambda: worker._callers.has_answers)
        for _ in range(2):
            with pytest.raises(OperationalError):
                worker.run_pass()
    drain(worker, acme, within=5)
    assert outcome(acme, run) == ("succeeded", None)
    assert [(row.step_id, row.attempt, row.state) for row in attempts_of(acme, run)] == [
        ("sync", 1, "succeeded"),
        ("b", 1, "succeeded"),
    ]
    assert len(endpoint.calls) == 1


def test_a_dispatch_that_the_database_left_counts_against_no_event(acme: TestRealm, worker: Worker) -> None:
    drain(worker, acme)
    workflow = acme.published(definition(step("end"), triggers=[event("user.created")]))
    with cut_off(acme, "workflow_runs", f"NEW.workflow_id = '{workflow}'"):
        ada = acme.user()
        with pytest.raises(OperationalError):
            worker.run_pass()
    (event_,) = rows(acme.database, "SELECT * FROM outbox_events WHERE user_id = :ada", ada=ada)
    assert (event_.attempts, event_.dispatched_at) == (0, None)
    drain(worker, acme)
    (run,) = rows(acme.database, "SELECT * FROM workflow_runs WHERE workflow_id = :id", id=workflow)
    assert (run.subject_id, run.state) == (ada, "succeeded")


def test_a_worker_goes_on_after_every_connection_was_cut(acme: TestRealm, worker: Worker) -> None:
    run, _ = acme.run(acme.published(definition(step("suspend_user"))), acme.user())
    with acme.database.owner_engine.begin() as connection:
        connection.exec_driver_sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    with pytest.raises(OperationalError):
        worker.run_pass()
    drain(worker, acme, within=5)
    assert outcome(acme, run) == ("succeeded", None)


def test_logs_of_the_engine_hold_no_inputs(acme: TestRealm, worker: Worker, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "engine")
    acme.user("sesame")
    acme.run(acme.published(definition(step("suspend_user")), "Secret project"), acme.user())
    with constraint(acme.database, "users", "state = 'active'"):
        drain(worker, acme)
    assert "failed in its own transaction" in caplog.text
    for word in ("sesame", "Secret project", "example.org", json.dumps({"type": "suspend_user"})):
        assert word not in caplog.text
