"""A failing run takes back what it did, newest first, and leaves alone what a person has changed since."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from werkzeug import Response

from engine.directory import roles
from engine.directory.acts import perform
from engine.directory.facts import Facts, Wanted
from engine.directory.sweep import sweep
from engine.lifecycle.worker import Worker
from tests.definitions import Json, definition, step
from tests.driver import (
    AnyRow,
    age,
    attempts_of,
    audit_of,
    constraint,
    drain,
    events_of,
    outcome,
    owner,
    rows,
    run_of,
    trail_of,
    trigger,
    wake,
)
from tests.endpoints import Endpoint
from tests.factories import TestRealm

PAUSE = step("wait", id="pause")
"""Time for something to happen between what was done and the failure."""


@pytest.fixture
def sales(acme: TestRealm) -> str:
    return acme.organization()


@pytest.fixture
def ada(acme: TestRealm, sales: str) -> str:
    (ada,) = acme.users(1, sales)
    return ada


@pytest.fixture
def role(acme: TestRealm) -> str:
    return acme.role(None, "org.members.read")


@pytest.fixture
def grant(role: str) -> Json:
    return step("assign_role", id="grant", role_id=role, organization_id=...)


@pytest.fixture
def wrong(acme: TestRealm) -> Json:
    """A step that fails for good: the subject is no member of that organization."""
    elsewhere = acme.organization()
    return step("add_to_group", id="wrong", group_id=acme.group(elsewhere), organization_id=elsewhere)


def started(acme: TestRealm, worker: Worker, subject: str, organization: str | None, *steps: Json) -> str:
    run_id, _ = acme.run(acme.published(definition(*steps)), subject, organization)
    drain(worker, acme)
    return run_id


def held_by(acme: TestRealm, user_id: str) -> list[AnyRow]:
    query = "SELECT * FROM role_assignments WHERE realm_id = :realm AND user_id = :user"
    return rows(acme.database, query, realm=acme.id, user=user_id)


def compensations(acme: TestRealm, run_id: str) -> list[tuple[str, str, int]]:
    """Step, compensation state and tries of every attempt that succeeded."""
    return [
        (row.step_id, row.compensation_state, row.compensation_attempts)
        for row in attempts_of(acme, run_id)
        if row.state == "succeeded"
    ]


def test_a_failing_run_takes_back_what_it_did_newest_first(
    acme: TestRealm, worker: Worker, sales: str, ada: str, grant: Json, wrong: Json
) -> None:
    team, old = acme.group(sales), acme.group(sales, members=[ada])
    steps = [
        grant,
        step("add_to_group", id="team", group_id=team, organization_id=...),
        step("remove_from_group", id="leave", group_id=old, organization_id=...),
        step("notify", id="tell", recipients=...),
        step("add_to_group", id="again", group_id=team, organization_id=...),
        wrong,
    ]
    run = started(acme, worker, ada, sales, *steps)
    assert outcome(acme, run) == ("compensated", "not_a_member")
    assert trail_of(acme, run, "") == [
        "workflow.run.started",
        "role.assignment.granted",
        "workflow.step.succeeded",
        "group.membership.added",
        "workflow.step.succeeded",
        "group.membership.removed",
        "workflow.step.succeeded",
        "workflow.step.succeeded",
        "workflow.step.succeeded",
        "workflow.step.failed",
        "workflow.run.failed",
        "group.membership.removed",
        "workflow.step.compensated",
        "role.assignment.revoked",
        "workflow.step.compensated",
        "workflow.run.compensated",
    ]
    assert compensations(acme, run) == [
        ("grant", "done", 1),
        ("team", "done", 1),
        ("leave", "not_needed", 0),  # a removal is not reversed
        ("tell", "impossible", 0),
        ("again", "not_needed", 0),  # what a step did not do it does not undo
    ]
    assert held_by(acme, ada) == []
    query = "SELECT 1 FROM group_members WHERE realm_id = :realm AND user_id = :ada"
    assert rows(acme.database, query, realm=acme.id, ada=ada) == []
    for row in audit_of(acme, run):
        assert (row.actor_type, row.actor_id, row.correlation_id) == ("user", acme.admin, run)
    undone = [row.details["step_id"] for row in audit_of(acme, run) if row.type == "workflow.step.compensated"]
    assert undone == ["team", "grant"]
    assert [row.type for row in events_of(acme, run)][-2:] == ["group.membership.removed", "role.assignment.revoked"]
    (end,) = [row for row in audit_of(acme, run) if row.type == "workflow.run.compensated"]
    assert end.details["category"] == "not_a_member"


def test_a_run_compensates_though_its_publisher_has_lost_all_authority(
    acme: TestRealm, worker: Worker, sales: str, ada: str, grant: Json
) -> None:
    publisher = acme.holder(acme.roles["realm-admin"])
    run, _ = acme.run(acme.published(definition(grant, PAUSE, step("end")), publisher=publisher), ada, sales)
    drain(worker, acme)
    acme.revoke(publisher, acme.roles["realm-admin"])
    age(acme, run, hours=1)
    drain(worker, acme)
    assert outcome(acme, run) == ("compensated", "publisher_lacks_authority")
    assert held_by(acme, ada) == []


def test_a_run_compensates_though_its_subject_was_deleted(
    acme: TestRealm, worker: Worker, sales: str, ada: str, grant: Json
) -> None:
    run = started(acme, worker, ada, sales, grant, PAUSE, step("suspend_user"))
    owner(acme.database, "UPDATE users SET state = 'deleted' WHERE id = :ada", ada=ada)
    age(acme, run, hours=1)
    drain(worker, acme)
    assert outcome(acme, run) == ("compensated", "subject_missing")
    assert held_by(acme, ada) == []


def by_hand(acme: TestRealm, user_id: str, role_id: str, sales: str, act: Callable[[Facts], Any]) -> None:
    wanted = Wanted(changing={acme.key(user_id)}, roles={acme.key(role_id)}, organizations={acme.key(sales)})
    with acme.database.begin() as connection:
        perform(connection, wanted, act)


def extended(acme: TestRealm, ada: str, role: str, sales: str) -> None:
    def act(facts: Facts) -> Any:
        held = facts.assignment(acme.key(ada), role, sales)
        assert held is not None
        return roles.extend(facts, acme.cause, acme.key(ada), held, facts.now + timedelta(days=365))

    by_hand(acme, ada, role, sales, act)


def replaced(acme: TestRealm, ada: str, role: str, sales: str) -> None:
    acme.revoke(ada, role, sales)
    acme.grant(ada, role, sales)


def removed(acme: TestRealm, ada: str, role: str, sales: str) -> None:
    acme.revoke(ada, role, sales)


@pytest.mark.parametrize(("change", "left"), [(extended, 1), (replaced, 1), (removed, 0)])
def test_an_undo_leaves_alone_what_a_person_has_made_of_the_assignment_since(
    acme: TestRealm,
    worker: Worker,
    sales: str,
    ada: str,
    role: str,
    grant: Json,
    wrong: Json,
    change: Callable[[TestRealm, str, str, str], None],
    left: int,
) -> None:
    run = started(acme, worker, ada, sales, grant, PAUSE, wrong)
    change(acme, ada, role, sales)
    by_now = held_by(acme, ada)
    assert len(by_now) == left
    age(acme, run, hours=1)
    drain(worker, acme)
    assert outcome(acme, run) == ("compensated", "not_a_member")
    assert compensations(acme, run)[0] == ("grant", "done", 1)
    assert held_by(acme, ada) == by_now
    assert "role.assignment.revoked" not in trail_of(acme, run, "")
    assert attempts_of(acme, run)[0].compensation_result == {"already_gone": True, "user_id": ada}


@pytest.mark.parametrize("joined_again", [True, False])
def test_an_undo_leaves_alone_what_a_person_has_made_of_the_group_membership_since(
    acme: TestRealm, worker: Worker, sales: str, ada: str, wrong: Json, joined_again: bool
) -> None:
    team = acme.group(sales)
    run = started(acme, worker, ada, sales, step("add_to_group", group_id=team, organization_id=...), PAUSE, wrong)
    owner(acme.database, "DELETE FROM group_members WHERE group_id = :team", team=team)
    if joined_again:
        acme.join(ada, team)
    age(acme, run, hours=1)
    drain(worker, acme)
    assert outcome(acme, run) == ("compensated", "not_a_member")
    members = rows(acme.database, "SELECT user_id FROM group_members WHERE group_id = :team", team=team)
    assert [row.user_id for row in members] == ([ada] if joined_again else [])


@pytest.mark.parametrize("swept", [True, False])
def test_a_grant_that_has_expired_meanwhile_counts_as_taken_back(
    acme: TestRealm, worker: Worker, sales: str, ada: str, role: str, grant: Json, wrong: Json, swept: bool
) -> None:
    run = started(acme, worker, ada, sales, {**grant, "expires_in": "1h"}, PAUSE, wrong)
    long_ago = datetime(2020, 1, 1, tzinfo=UTC)
    owner(acme.database, "UPDATE role_assignments SET expires_at = :then WHERE user_id = :ada", then=long_ago, ada=ada)
    if swept:
        assert sweep(acme.database) >= 1
    age(acme, run, hours=1)
    drain(worker, acme)
    assert outcome(acme, run) == ("compensated", "not_a_member")
    assert held_by(acme, ada) == []
    query = (
        "SELECT type FROM outbox_events WHERE realm_id = :realm AND type LIKE 'role.assignment.%' AND user_id = :ada"
    )
    told = [row.type for row in rows(acme.database, query, realm=acme.id, ada=ada)]
    assert told == ["role.assignment.granted", "role.assignment.expired"]


def test_an_owner_whom_the_undo_would_leave_an_organization_without_ends_the_run_compensation_failed(
    acme: TestRealm, worker: Worker, sales: str, ada: str, grant: Json, wrong: Json
) -> None:
    """The failed compensation holds nothing back: what came before it is still taken back."""
    own = step("assign_role", id="own", role_id=acme.roles["org-owner"], organization_id=...)
    run = started(acme, worker, ada, sales, grant, own, wrong)
    assert outcome(acme, run) == ("compensation_failed", "not_a_member")
    assert compensations(acme, run) == [("grant", "done", 1), ("own", "failed", 1)]
    assert [held.role_id for held in held_by(acme, ada)] == [acme.roles["org-owner"]]
    assert trail_of(acme, run)[-4:] == [
        "workflow.run.failed",
        "workflow.step.compensation_failed",
        "workflow.step.compensated",
        "workflow.run.compensation_failed",
    ]
    assert attempts_of(acme, run)[1].compensation_result["category"] == "conflict"
    failed = [row for row in audit_of(acme, run) if row.type == "workflow.step.compensation_failed"]
    assert [(row.details["category"], row.details["attempts"]) for row in failed] == [("conflict", 1)]


# notify_endpoint


@pytest.fixture
def sync(endpoint: Endpoint) -> Json:
    return step("call_webhook", id="sync", subscription_id=endpoint.subscription, timeout_ms=..., compensate=True)


def test_an_endpoint_is_told_to_compensate_under_a_key_of_its_own(
    acme: TestRealm, worker: Worker, ada: str, sales: str, endpoint: Endpoint, grant: Json, sync: Json, wrong: Json
) -> None:
    run = started(acme, worker, ada, sales, grant, sync, wrong)
    assert outcome(acme, run) == ("compensated", "not_a_member")
    assert compensations(acme, run) == [("grant", "done", 1), ("sync", "done", 1)]
    attempt = attempts_of(acme, run)[1]
    assert (attempt.compensation_strategy, attempt.compensation_result) == ("notify_endpoint", {"status": 204})
    assert attempt.compensation_started_at is None
    (call,) = endpoint.of("compensate")
    assert call.headers["Webhook-Id"] == f"{attempt.id}c"
    assert call.headers["Idempotency-Key"] == call.body["idempotency_key"] == f"{run}.sync.compensate"
    assert call.body["attempt"] == 1
    undone = [row.details["step_id"] for row in audit_of(acme, run) if row.type == "workflow.step.compensated"]
    assert undone == ["sync", "grant"]


def test_an_endpoint_that_keeps_failing_is_tried_five_times_and_holds_back_what_came_before_it(
    acme: TestRealm, worker: Worker, ada: str, sales: str, endpoint: Endpoint, grant: Json, sync: Json, wrong: Json
) -> None:
    endpoint.compensate = [Response(status=500) for _ in range(5)]
    run = started(acme, worker, ada, sales, grant, sync, wrong)
    for tries in range(1, 5):
        assert run_of(acme, run).state == "compensating"
        assert compensations(acme, run) == [("grant", "pending", 0), ("sync", "pending", tries)]
        assert len(held_by(acme, ada)) == 1
        assert_waits(acme, run, seconds=30 * 2 ** (tries - 1))
        wake(acme, run)
        drain(worker, acme)
    assert outcome(acme, run) == ("compensation_failed", "not_a_member")
    assert compensations(acme, run) == [("grant", "done", 1), ("sync", "failed", 5)]
    assert held_by(acme, ada) == []
    attempt = attempts_of(acme, run)[1]
    assert attempt.compensation_result["category"] == "http_500"
    told = endpoint.of("compensate")
    assert [call.body["attempt"] for call in told] == [1, 2, 3, 4, 5]
    assert {call.headers["Webhook-Id"] for call in told} == {f"{attempt.id}c"}
    assert {call.headers["Idempotency-Key"] for call in told} == {f"{run}.sync.compensate"}
    assert trail_of(acme, run)[-3:] == [
        "workflow.step.compensation_failed",
        "workflow.step.compensated",
        "workflow.run.compensation_failed",
    ]
    (failed,) = [row for row in audit_of(acme, run) if row.type == "workflow.step.compensation_failed"]
    assert (failed.details["category"], failed.details["attempts"]) == ("http_500", 5)


def test_an_endpoint_that_comes_back_is_compensated_and_the_rest_with_it(
    acme: TestRealm, worker: Worker, ada: str, sales: str, endpoint: Endpoint, grant: Json, sync: Json, wrong: Json
) -> None:
    endpoint.compensate = [Response(status=503, headers={"Retry-After": "600"})]
    run = started(acme, worker, ada, sales, grant, sync, wrong)
    assert_waits(acme, run, seconds=600, most=600)
    wake(acme, run)
    drain(worker, acme)
    assert outcome(acme, run) == ("compensated", "not_a_member")
    assert compensations(acme, run) == [("grant", "done", 1), ("sync", "done", 2)]


@pytest.mark.parametrize(("status", "category"), [(410, "gone"), (404, "http_404")])
def test_a_permanent_answer_ends_a_compensation_at_once(
    acme: TestRealm,
    worker: Worker,
    ada: str,
    sales: str,
    endpoint: Endpoint,
    sync: Json,
    wrong: Json,
    status: int,
    category: str,
) -> None:
    endpoint.compensate = [Response(status=status)]
    run = started(acme, worker, ada, sales, sync, wrong)
    assert outcome(acme, run) == ("compensation_failed", "not_a_member")
    assert compensations(acme, run) == [("sync", "failed", 1)]
    assert attempts_of(acme, run)[0].compensation_result["category"] == category
    assert len(endpoint.of("compensate")) == 1


@pytest.mark.parametrize(
    ("state", "category", "tries"),
    [
        ("disabled", "subscription_disabled", 1),
        ("deleted", "subscription_missing", 1),
        ("paused", "subscription_paused", 5),
    ],
)
def test_a_subscription_that_cannot_be_called_any_more_fails_its_compensation(
    acme: TestRealm,
    worker: Worker,
    ada: str,
    sales: str,
    endpoint: Endpoint,
    sync: Json,
    wrong: Json,
    state: str,
    category: str,
    tries: int,
) -> None:
    run = started(acme, worker, ada, sales, sync, PAUSE, wrong)
    endpoint.become(state)
    age(acme, run, hours=1)
    drain(worker, acme)
    for _ in range(tries - 1):
        wake(acme, run)
        drain(worker, acme)
    assert outcome(acme, run) == ("compensation_failed", "not_a_member")
    assert compensations(acme, run)[0] == ("sync", "failed", tries)
    assert attempts_of(acme, run)[0].compensation_result["category"] == category
    assert endpoint.of("compensate") == []


def test_a_call_that_asks_for_no_compensation_leaves_nothing_to_undo(
    acme: TestRealm, worker: Worker, ada: str, sales: str, endpoint: Endpoint, sync: Json, wrong: Json
) -> None:
    run = started(acme, worker, ada, sales, {**sync, "compensate": False}, wrong)
    assert outcome(acme, run) == ("failed", "not_a_member")
    (attempt, _) = attempts_of(acme, run)
    assert (attempt.compensation_strategy, attempt.compensation_state) == ("impossible", "impossible")
    assert endpoint.of("compensate") == []


def test_a_compensation_call_that_its_worker_did_not_live_to_record_counts_as_a_try(
    acme: TestRealm, worker: Worker, ada: str, sales: str, endpoint: Endpoint, sync: Json, wrong: Json
) -> None:
    endpoint.compensate = [Response(status=500)]
    run = started(acme, worker, ada, sales, sync, wrong)
    owner(
        acme.database,
        "UPDATE workflow_step_attempts SET compensation_started_at = clock_timestamp(), compensation_attempts = 2"
        " WHERE run_id = :run AND step_id = 'sync'",
        run=run,
    )
    wake(acme, run)
    drain(worker, acme)
    attempt = attempts_of(acme, run)[0]
    assert (attempt.compensation_state, attempt.compensation_attempts) == ("pending", 2)
    assert attempt.compensation_result["category"] == "interrupted"
    assert attempt.compensation_started_at is None
    assert_waits(acme, run, seconds=60)
    wake(acme, run)
    drain(worker, acme)
    assert outcome(acme, run) == ("compensated", "not_a_member")
    assert [call.body["attempt"] for call in endpoint.of("compensate")] == [1, 3]


def test_a_disabled_workflow_still_compensates(
    acme: TestRealm, worker: Worker, ada: str, sales: str, endpoint: Endpoint, grant: Json, sync: Json, wrong: Json
) -> None:
    endpoint.compensate = [Response(status=500)]
    run = started(acme, worker, ada, sales, grant, sync, wrong)
    owner(
        acme.database,
        "UPDATE workflows SET state = 'disabled' WHERE id = :id",
        id=run_of(acme, run).workflow_id,
    )
    wake(acme, run)
    drain(worker, acme)
    assert outcome(acme, run) == ("compensated", "not_a_member")


def test_a_compensation_that_its_own_transaction_fails_is_tried_again_and_then_failed(
    acme: TestRealm, worker: Worker, ada: str, sales: str, grant: Json, wrong: Json
) -> None:
    run = started(acme, worker, ada, sales, grant, PAUSE, wrong)
    age(acme, run, hours=1)
    keep = f"IF OLD.user_id = '{ada}' THEN RAISE EXCEPTION 'kept'; END IF; RETURN OLD;"
    with trigger(acme.database, "BEFORE DELETE ON role_assignments", keep):
        drain(worker, acme)
        for tries in range(1, 5):
            assert compensations(acme, run)[0] == ("grant", "pending", tries)
            wake(acme, run)
            drain(worker, acme)
    assert outcome(acme, run) == ("compensation_failed", "not_a_member")
    assert compensations(acme, run)[0] == ("grant", "failed", 5)
    assert attempts_of(acme, run)[0].compensation_result["category"] == "error"
    assert len(held_by(acme, ada)) == 1


def test_an_answer_that_cannot_be_recorded_counts_the_call_once(
    acme: TestRealm, worker: Worker, ada: str, sales: str, endpoint: Endpoint, sync: Json, wrong: Json
) -> None:
    run = started(acme, worker, ada, sales, sync, PAUSE, wrong)
    age(acme, run, hours=1)
    with constraint(acme.database, "workflow_step_attempts", f"run_id <> '{run}' OR compensation_state <> 'done'"):
        drain(worker, acme)
        assert compensations(acme, run)[0] == ("sync", "pending", 1)
    wake(acme, run)
    drain(worker, acme)
    assert outcome(acme, run) == ("compensated", "not_a_member")
    assert [call.body["attempt"] for call in endpoint.of("compensate")] == [1, 2]


def assert_waits(acme: TestRealm, run_id: str, *, seconds: float, most: float | None = None) -> None:
    """The run is due so many seconds after it failed, and up to a fifth of that more."""
    (row,) = rows(
        acme.database,
        "SELECT extract(epoch FROM due_at - clock_timestamp())::float AS left FROM workflow_runs WHERE id = :run",
        run=run_id,
    )
    assert seconds - 5 < row.left <= (seconds * 1.2 if most is None else most)
