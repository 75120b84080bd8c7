"""Runs that people stop: cancelled wherever they are, or held back by a workflow that is disabled."""

from __future__ import annotations

import random
import threading

import pytest
from werkzeug import Response

from db.session import Database
from engine.core.errors import Refused
from engine.lifecycle import approvals, runs
from engine.lifecycle.worker import Worker
from tests.definitions import Json, definition, step
from tests.driver import (
    age,
    approval_of,
    attempts_of,
    audit_of,
    drain,
    many_runs,
    outcome,
    owner,
    rows,
    run_of,
    trail_of,
    until,
    wake,
    working,
)
from tests.endpoints import Endpoint
from tests.factories import TestRealm, a_realm

CANCELLED = ["workflow.run.cancel_requested", "workflow.run.failed", "workflow.run.cancelled"]


@pytest.fixture
def ada(acme: TestRealm) -> str:
    return acme.user()


def cancel(acme: TestRealm, run_id: str, by: str | None = None) -> None:
    with acme.database.begin() as connection:
        runs.cancel(connection, acme.by(by or acme.admin), run_id)


def cancel_refused(acme: TestRealm, run_id: str) -> str:
    with pytest.raises(Refused) as refusal:
        cancel(acme, run_id)
    return refusal.value.category


def started(acme: TestRealm, worker: Worker, subject: str, *steps: Json, organization: str | None = None) -> str:
    run_id, _ = acme.run(acme.published(definition(*steps)), subject, organization)
    drain(worker, acme)
    return run_id


def calling(endpoint: Endpoint, **members: object) -> Json:
    return step("call_webhook", id="sync", **{"subscription_id": endpoint.subscription, "timeout_ms": ...} | members)


def assert_cancelled(acme: TestRealm, run_id: str, *before: str) -> None:
    """The run ended cancelled, with that trail; it was the administrator who asked, and the publisher's run that ended."""
    assert outcome(acme, run_id) == ("cancelled", "cancelled")
    assert trail_of(acme, run_id) == ["workflow.run.started", *before, *CANCELLED]
    failed = [row for row in audit_of(acme, run_id) if row.type == "workflow.run.failed"]
    assert [row.details["reason"] for row in failed] == ["cancelled"]


def test_a_run_that_no_worker_has_seen_is_cancelled_without_an_attempt(
    acme: TestRealm, worker: Worker, ada: str
) -> None:
    other = acme.holder(acme.roles["realm-admin"])
    run, _ = acme.run(acme.published(definition(step("suspend_user"))), ada)
    cancel(acme, run, by=other)
    drain(worker, acme)
    assert_cancelled(acme, run)
    assert attempts_of(acme, run) == []
    actors = {row.type: row.actor_id for row in audit_of(acme, run)}
    assert actors["workflow.run.cancel_requested"] == other
    assert actors["workflow.run.cancelled"] == acme.admin
    assert rows(acme.database, "SELECT state FROM users WHERE id = :ada", ada=ada) == [("active",)]


def test_a_run_that_waits_for_a_retry_is_cancelled_at_once(
    acme: TestRealm, worker: Worker, endpoint: Endpoint, ada: str
) -> None:
    endpoint.execute = [Response(status=500)]
    run = started(acme, worker, ada, calling(endpoint))
    assert run_of(acme, run).state == "running"
    cancel(acme, run)
    drain(worker, acme)
    assert_cancelled(acme, run, "workflow.step.failed")
    assert len(endpoint.calls) == 1


def test_a_waiting_run_is_cancelled_and_the_attempt_that_was_begun_ends_with_it(
    acme: TestRealm, worker: Worker, ada: str
) -> None:
    run = started(acme, worker, ada, step("wait"))
    cancel(acme, run)
    drain(worker, acme)
    assert outcome(acme, run) == ("cancelled", "cancelled")
    assert trail_of(acme, run) == [
        "workflow.run.started",
        "workflow.run.cancel_requested",
        "workflow.step.failed",
        "workflow.run.failed",
        "workflow.run.cancelled",
    ]
    (attempt,) = attempts_of(acme, run)
    assert (attempt.state, attempt.error_category) == ("failed", "cancelled")


def test_a_run_that_awaits_approval_is_cancelled_and_nobody_can_decide_any_more(
    acme: TestRealm, worker: Worker, ada: str
) -> None:
    run = started(acme, worker, ada, step("approval", approvers=[acme.admin]))
    cancel(acme, run)
    drain(worker, acme)
    assert outcome(acme, run) == ("cancelled", "cancelled")
    approval = approval_of(acme, run)
    assert approval.state == "cancelled"
    assert [each for each in trail_of(acme, run) if "approval" in each] == ["workflow.approval.requested"]
    with acme.database.begin() as connection, pytest.raises(Refused, match="cancelled already"):
        approvals.decide(connection, acme.cause, approval.id, "approve")


def test_a_cancelled_run_takes_back_what_it_did(acme: TestRealm, worker: Worker) -> None:
    sales, role = acme.organization(), acme.role(None, "org.members.read")
    (ada,) = acme.users(1, sales)
    grant = step("assign_role", role_id=role, organization_id=...)
    run = started(acme, worker, ada, grant, step("wait", id="b"), organization=sales)
    cancel(acme, run)
    drain(worker, acme)
    assert outcome(acme, run) == ("cancelled", "cancelled")
    assert trail_of(acme, run)[-4:] == [
        "workflow.step.failed",
        "workflow.run.failed",
        "workflow.step.compensated",
        "workflow.run.cancelled",
    ]
    assert rows(acme.database, "SELECT 1 FROM role_assignments WHERE user_id = :ada", ada=ada) == []


def test_a_cancelled_run_whose_compensation_fails_ends_compensation_failed(acme: TestRealm, worker: Worker) -> None:
    sales = acme.organization()
    (ada,) = acme.users(1, sales)
    own = step("assign_role", role_id=acme.roles["org-owner"], organization_id=...)  # then nobody else owns it
    run = started(acme, worker, ada, own, step("wait", id="b"), organization=sales)
    cancel(acme, run)
    drain(worker, acme)
    assert outcome(acme, run) == ("compensation_failed", "cancelled")
    assert trail_of(acme, run)[-2:] == ["workflow.step.compensation_failed", "workflow.run.compensation_failed"]


# while a call is out


def while_a_call_is_out(acme: TestRealm, worker: Worker, endpoint: Endpoint, ada: str, **members: object) -> str:
    """A run of one call, cancelled while the endpoint thinks about it; drained once it has answered."""
    endpoint.hold.clear()
    run, _ = acme.run(acme.published(definition(calling(endpoint, **members))), ada)
    until(lambda: worker.run_pass() and endpoint.calls)
    cancel(acme, run)
    endpoint.hold.set()
    drain(worker, acme)
    return run


def test_a_cancel_while_the_last_call_is_out_is_never_followed_by_a_success(
    acme: TestRealm, worker: Worker, endpoint: Endpoint, ada: str
) -> None:
    run = while_a_call_is_out(acme, worker, endpoint, ada, compensate=True)
    assert outcome(acme, run) == ("cancelled", "cancelled")
    assert trail_of(acme, run) == [
        "workflow.run.started",
        "workflow.run.cancel_requested",
        "workflow.step.succeeded",
        "workflow.run.failed",
        "workflow.step.compensated",
        "workflow.run.cancelled",
    ]
    assert [call.body["action"] for call in endpoint.calls] == ["execute", "compensate"]


@pytest.mark.parametrize(("status", "category"), [(503, "http_503"), (410, "gone")])
def test_a_cancel_while_a_call_is_out_waits_for_its_answer_and_for_no_retry(
    acme: TestRealm, worker: Worker, endpoint: Endpoint, ada: str, status: int, category: str
) -> None:
    endpoint.execute = [Response(status=status)]
    run = while_a_call_is_out(acme, worker, endpoint, ada)
    assert outcome(acme, run) == ("cancelled", "cancelled")
    (attempt,) = attempts_of(acme, run)
    assert (attempt.state, attempt.error_category) == ("failed", category)
    assert trail_of(acme, run) == [
        "workflow.run.started",
        "workflow.run.cancel_requested",
        "workflow.step.failed",
        "workflow.run.failed",
        "workflow.run.cancelled",
    ]
    failed = [row for row in audit_of(acme, run) if row.type == "workflow.run.failed"]
    assert [row.details["reason"] for row in failed] == ["cancelled"]


def test_a_call_that_nobody_lived_to_record_ends_interrupted_when_its_run_is_cancelled(
    acme: TestRealm, module_database: Database, endpoint: Endpoint, ada: str
) -> None:
    endpoint.hold.clear()
    run, _ = acme.run(acme.published(definition(calling(endpoint))), ada)
    with working(module_database) as stopping:
        until(lambda: stopping.run_pass() and endpoint.calls)
    cancel(acme, run)
    endpoint.hold.set()
    with working(module_database) as worker:
        drain(worker, acme)
    assert outcome(acme, run) == ("cancelled", "cancelled")
    (attempt,) = attempts_of(acme, run)
    assert (attempt.state, attempt.error_category) == ("failed", "interrupted")


# what cannot be cancelled


def test_a_run_that_compensates_cannot_be_cancelled(
    acme: TestRealm, worker: Worker, endpoint: Endpoint, ada: str
) -> None:
    endpoint.compensate = [Response(status=500)]
    run = started(acme, worker, ada, calling(endpoint, compensate=True), step("notify", id="b", recipients="approvers"))
    assert run_of(acme, run).state == "compensating"
    assert cancel_refused(acme, run) == "conflict"
    wake(acme, run)
    drain(worker, acme)
    assert outcome(acme, run) == ("compensated", "no_recipients")
    assert cancel_refused(acme, run) == "conflict"
    assert "workflow.run.cancel_requested" not in trail_of(acme, run)


def test_a_cancellation_is_asked_for_once(acme: TestRealm, worker: Worker, ada: str) -> None:
    run = started(acme, worker, ada, step("wait"))
    cancel(acme, run)
    assert cancel_refused(acme, run) == "conflict"
    drain(worker, acme)
    assert cancel_refused(acme, run) == "conflict"
    assert trail_of(acme, run).count("workflow.run.cancel_requested") == 1


def test_a_finished_run_cannot_be_cancelled(acme: TestRealm, worker: Worker, ada: str) -> None:
    assert cancel_refused(acme, started(acme, worker, ada, step("end"))) == "conflict"
    failed = started(acme, worker, ada, step("notify", recipients="approvers"))
    assert run_of(acme, failed).state == "failed"
    assert cancel_refused(acme, failed) == "conflict"


def test_a_run_of_another_realm_is_not_found(acme: TestRealm, worker: Worker, ada: str) -> None:
    run = started(acme, worker, ada, step("wait"))
    assert cancel_refused(a_realm(acme.database), run) == "not_found"
    assert run_of(acme, run).cancel_requested_at is None


def test_a_cancel_that_races_with_the_last_step_wins_or_is_refused_and_state_and_trail_agree(
    acme: TestRealm, module_database: Database
) -> None:
    workflow = acme.published(definition(step("notify", recipients=...), step("end", id="b")))
    raced = many_runs(acme, workflow, acme.users(120))
    refusals: dict[str, str] = {}

    def cancel_all(some: list[str]) -> None:
        for run in some:
            try:
                cancel(acme, run)
            except Refused as refusal:
                refusals[run] = refusal.category

    cancel_all(raced[:5])
    with working(module_database, batch_size=10) as worker:
        worker.run_pass()  # some have ended by now, the others race
        canceller = threading.Thread(target=cancel_all, args=(random.sample(raced[5:], len(raced) - 5),))
        canceller.start()
        drain(worker, acme)
        canceller.join()
        drain(worker, acme)
    for run in raced:
        trail = trail_of(acme, run)
        if run in refusals:
            assert refusals[run] == "conflict"
            assert outcome(acme, run) == ("succeeded", None)
            assert "workflow.run.cancel_requested" not in trail
        else:
            assert outcome(acme, run) == ("cancelled", "cancelled")
            assert "workflow.run.succeeded" not in trail
            assert [each for each in trail if each in CANCELLED] == CANCELLED
    assert 0 < len(refusals) < len(raced)  # both happened


# disabled workflows


def set_workflow(acme: TestRealm, run_id: str, state: str) -> None:
    owner(
        acme.database,
        "UPDATE workflows SET state = :state WHERE id = :id",
        state=state,
        id=run_of(acme, run_id).workflow_id,
    )
    if state == "active":  # what enabling it does to its runs
        owner(
            acme.database,
            "UPDATE workflow_runs SET paused = false, due_at = clock_timestamp() WHERE id = :run AND paused",
            run=run_id,
        )


def assert_held(acme: TestRealm, run_id: str, state: str) -> None:
    """The run is where it was, in nobody's hands and never due."""
    row = run_of(acme, run_id)
    assert (row.state, row.paused, row.due_at, row.lease_owner) == (state, True, None, None)


def test_a_disabled_workflow_holds_a_run_that_has_not_begun_and_lets_it_go_when_it_is_enabled(
    acme: TestRealm, worker: Worker, ada: str
) -> None:
    run, _ = acme.run(acme.published(definition(step("suspend_user"))), ada)
    set_workflow(acme, run, "disabled")
    drain(worker, acme)
    assert_held(acme, run, "pending")
    assert attempts_of(acme, run) == []
    set_workflow(acme, run, "active")
    drain(worker, acme)
    assert outcome(acme, run) == ("succeeded", None)


def test_a_disabled_workflow_holds_a_run_whose_wait_is_over(acme: TestRealm, worker: Worker, ada: str) -> None:
    run = started(acme, worker, ada, step("wait"), step("suspend_user", id="b"))
    set_workflow(acme, run, "disabled")
    age(acme, run, hours=1)
    drain(worker, acme)
    assert_held(acme, run, "waiting")
    set_workflow(acme, run, "active")
    drain(worker, acme)
    assert outcome(acme, run) == ("succeeded", None)


def test_an_approval_decided_while_the_workflow_is_disabled_counts_once_it_is_enabled(
    acme: TestRealm, worker: Worker, ada: str
) -> None:
    run = started(acme, worker, ada, step("approval", approvers=[acme.admin]))
    set_workflow(acme, run, "disabled")
    for _ in range(2):  # not held yet, then held
        drain(worker, acme)
        wake(acme, run) if run_of(acme, run).due_at else None
    drain(worker, acme)
    assert_held(acme, run, "awaiting_approval")
    with acme.database.begin() as connection:
        approvals.decide(connection, acme.cause, approval_of(acme, run).id, "approve")
    drain(worker, acme)
    assert_held(acme, run, "awaiting_approval")
    set_workflow(acme, run, "active")
    drain(worker, acme)
    assert outcome(acme, run) == ("succeeded", None)


def test_the_answer_to_a_call_is_recorded_though_the_workflow_was_disabled_meanwhile(
    acme: TestRealm, worker: Worker, endpoint: Endpoint, ada: str
) -> None:
    endpoint.hold.clear()
    run, _ = acme.run(acme.published(definition(calling(endpoint), step("suspend_user", id="b"))), ada)
    until(lambda: worker.run_pass() and endpoint.calls)
    set_workflow(acme, run, "disabled")
    endpoint.hold.set()
    drain(worker, acme)
    assert_held(acme, run, "running")
    assert [(row.step_id, row.state) for row in attempts_of(acme, run)] == [("sync", "succeeded")]


@pytest.mark.parametrize("held", [True, False])
def test_a_run_of_a_disabled_workflow_can_still_be_cancelled(acme: TestRealm, worker: Worker, held: bool) -> None:
    sales, role = acme.organization(), acme.role(None, "org.members.read")
    (ada,) = acme.users(1, sales)
    grant = step("assign_role", role_id=role, organization_id=...)
    run = started(acme, worker, ada, grant, step("wait", id="b"), organization=sales)
    set_workflow(acme, run, "disabled")
    if held:
        age(acme, run, hours=1)
        drain(worker, acme)
        assert_held(acme, run, "waiting")
    cancel(acme, run)
    drain(worker, acme)
    assert outcome(acme, run) == ("cancelled", "cancelled")
    assert rows(acme.database, "SELECT 1 FROM role_assignments WHERE user_id = :ada", ada=ada) == []
