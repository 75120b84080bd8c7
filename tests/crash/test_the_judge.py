"""The judge can condemn: for each invariant something that breaks it is planted, and the invariant tells.

The database is one that a worker has worked on: runs that succeeded, one that was undone, one that waits. Plants are rolled back.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import text

from db.session import Database
from tests.crash import judge
from tests.crash.kinds import KINDS
from tests.crash.stage import Stage
from tests.crash.story import Theatre

WAITING = "finished_at IS NULL"
A_GRANT = "type = 'role.assignment.granted' AND correlation_id LIKE 'wrn_%'"
GRANTED = "step_id = 'grant'"
HELD = (
    "UPDATE workflow_runs SET lease_owner = 'worker-here-1-a', lease_expires_at = now() + interval '1 minute',"
    f" due_at = now() + interval '1 minute', fence = fence + 1 WHERE {WAITING}"
)
EXCHANGED = (
    """(CASE details ->> 'step_id' WHEN 'sync' THEN '"grant"' WHEN 'grant' THEN '"sync"' ELSE '"team"' END)::jsonb"""
)
A_SLOT = '{"slot": "2026-01-01", "complete": true}'
A_STRANGER = "SET LOCAL application_name = 'worker 2'"


def again(condition: str) -> str:
    """A second copy of audit rows."""
    columns = "realm_id, id, type, category, actor_type, actor_id, target_type, target_id, request_id, correlation_id, details"
    return f"INSERT INTO audit_events ({columns}) SELECT {columns} FROM audit_events WHERE {condition}"


def another_attempt(**members: object) -> str:
    """A copy of the attempts of `grant`, with other members."""
    other = ", ".join(f"'{name}', '{value}'" for name, value in {"attempt": 2, **members}.items())
    return (
        "INSERT INTO workflow_step_attempts"
        f" SELECT (jsonb_populate_record(a, jsonb_build_object({other}))).* FROM workflow_step_attempts a"
        f" WHERE {GRANTED}"
    )


PLANTS: dict[str, list[str]] = {
    "approvals_and_audit_differ": [again("type = 'workflow.approval.approved'")],
    "attempts_after_the_last": [another_attempt(state="failed", error_category="error")],
    "attempts_beyond_the_policy": ["UPDATE workflow_step_attempts SET max_attempts = 0"],
    "attempts_reopened": [
        f"UPDATE workflow_step_attempts SET state = 'failed', error_category = 'error' WHERE {GRANTED}"
    ],
    "attempts_with_holes": ["UPDATE workflow_step_attempts SET attempt = 3"],
    "changes_after_the_end": [f"UPDATE workflow_runs SET last_error = 'late' WHERE NOT {WAITING}"],
    "claims_without_a_fence": [HELD.replace("fence + 1", "fence")],
    "compensated_in_parallel": [
        "UPDATE workflow_step_attempts SET compensation_state = 'pending', compensation_started_at = now()",
    ],
    "compensated_out_of_order": [
        f"UPDATE audit_events SET details = jsonb_set(details, '{{step_id}}', {EXCHANGED}) WHERE type LIKE '%.compensated'",
    ],
    "compensated_without_need": [
        "UPDATE workflow_step_attempts SET compensation_state = 'done' WHERE step_id = 'tell'"
    ],
    "effects_and_events_differ": [f"DELETE FROM outbox_events WHERE {A_GRANT}"],
    "effects_and_steps_differ": [again(A_GRANT)],
    "effects_without_a_step": ["UPDATE messages SET step_key = id"],
    "ended_runs_still_held": [
        "ALTER TABLE workflow_runs DROP CONSTRAINT finished_is_never_due",
        f"UPDATE workflow_runs SET due_at = now() WHERE NOT {WAITING}",
    ],
    "ended_runs_with_open_parts": [
        f"UPDATE workflow_step_attempts SET state = 'started', finished_at = NULL WHERE {GRANTED}"
    ],
    "ends_without_their_audit": ["DELETE FROM audit_events WHERE type = 'workflow.run.succeeded'"],
    "events_left_behind": ["UPDATE outbox_events SET dispatched_at = NULL, due_at = now() - interval '2 minutes'"],
    "events_without_their_run": ["DELETE FROM workflow_runs WHERE trigger_type = 'event'"],
    "falling_fences": ["UPDATE workflow_runs SET fence = fence - 1"],
    "given_twice": [again(A_GRANT)],
    "keys_that_changed": ["UPDATE workflow_step_attempts SET idempotency_key = id"],
    "leases_taken_from_others": [
        HELD,
        A_STRANGER,
        f"UPDATE workflow_runs SET lease_expires_at = now(), due_at = now() WHERE {WAITING}",
    ],
    "lost_runs": [
        "ALTER TABLE workflow_runs DROP CONSTRAINT unfinished_is_due_or_paused",
        f"UPDATE workflow_runs SET due_at = NULL WHERE {WAITING}",
    ],
    "messages_and_steps_differ": ["DELETE FROM messages"],
    "moves_off_the_table": [f"UPDATE workflow_runs SET state = 'pending' WHERE {WAITING}"],
    "moves_without_a_lease": [HELD, A_STRANGER, f"UPDATE workflow_runs SET state = 'running' WHERE {WAITING}"],
    "slots_covered_twice": [
        f"UPDATE audit_events SET type = 'workflow.schedule.fired', target_id = 'wfl_1', details = '{A_SLOT}'",
    ],
    "starts_without_their_audit": ["DELETE FROM audit_events WHERE type = 'workflow.run.started'"],
    "steps_ahead": ["UPDATE workflow_runs SET step_index = 0"],
    "steps_and_audit_differ": ["DELETE FROM audit_events WHERE type = 'workflow.step.succeeded'"],
    "steps_done_twice": ["DROP INDEX workflow_step_attempts_one_success", another_attempt()],
    "steps_left_out": ["DELETE FROM workflow_step_attempts WHERE step_index = 0"],
    "stuck_runs": [f"UPDATE workflow_runs SET due_at = now() - interval '2 minutes' WHERE {WAITING}"],
    "taken_away_twice": [again("type = 'role.assignment.revoked'")],
    "wrong_ends": ["UPDATE workflow_runs SET state = 'failed' WHERE state = 'compensated'"],
}


@pytest.fixture(scope="module")
def worked_on(theatre: Theatre) -> Iterator[Database]:
    (undone,) = (kind for kind in KINDS if kind.name == "three steps undone")
    with theatre.stage() as stage:
        asking = [
            {"id": "ask", "type": "approval", "approvers": [stage.approver], "expires_in": "1h"},
            {"id": "rest", "type": "wait", "for": "1h"},
            {"id": "done", "type": "end"},
        ]
        stage.five_steps()
        stage.begin(stage.publish(asking), stage.member())
        stage.begin(stage.publish(undone.steps(stage)), stage.member())
        worker = theatre.launcher.start(stage.database)
        worker.wait(lambda: is_ready(stage), "it has done its part")
        worker.leave()
        yield stage.database


def is_ready(stage: Stage) -> bool:
    """Two runs have succeeded (both memberships start one), one was undone, one waits after its approval."""
    stage.decide_approvals()
    states = sorted(row.state for row in stage.rows("SELECT state FROM workflow_runs WHERE lease_owner IS NULL"))
    return states == ["compensated", "succeeded", "succeeded", "waiting"]


def test_every_invariant_holds_where_nobody_was_killed(worked_on: Database) -> None:
    judge.require_sound(worked_on)


def test_every_invariant_has_its_plant(worked_on: Database) -> None:
    assert judge.names(worked_on) == sorted(PLANTS)


@pytest.mark.parametrize("name", PLANTS)
def test_what_an_invariant_forbids_is_seen(name: str, worked_on: Database) -> None:
    with worked_on.owner_engine.connect() as connection:
        for statement in PLANTS[name]:
            assert connection.execute(text(statement.replace(":", "\\:"))).rowcount != 0
        assert connection.execute(text(f"SELECT * FROM invariants.{name}")).all()
        connection.rollback()
