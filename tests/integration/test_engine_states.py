"""The state tables, the database's checks and what runs really do: all three say the same."""

from __future__ import annotations

import re
from typing import get_args

import pytest
from pytest_httpserver import HTTPServer
from werkzeug import Response

from db.session import Database
from db.tables.runs import FINISHED_STATES, RUN_STATES
from engine.core.machine import StateTable
from engine.core.outcomes import CompensationState, Strategy
from engine.lifecycle import approvals, revisions, runs
from engine.lifecycle.states import APPROVAL, REVISION, RUN, WORKFLOW
from engine.lifecycle.worker import Worker
from tests.definitions import Json, definition, step
from tests.driver import age, approval_of, drain, emptied, owner, rows, run_of, wake
from tests.endpoints import Endpoint
from tests.factories import TestRealm, a_realm


def checked(database: Database, table: str, constraint: str) -> set[str]:
    """The values that a check of the database names."""
    query = "SELECT pg_get_constraintdef(oid) AS text FROM pg_constraint WHERE conrelid = CAST(:t AS regclass) AND conname = :c"
    (row,) = rows(database, query, t=table, c=constraint)
    return set(re.findall(r"'([a-z_]+)'", row.text))


@pytest.mark.parametrize(
    ("table", "constraint", "machine"),
    [
        ("workflow_runs", "state_is_known", RUN),
        ("workflow_approvals", "state_is_known", APPROVAL),
        ("workflow_revisions", "status_is_known", REVISION),
        ("workflows", "state_is_known", WORKFLOW),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_database_knows_exactly_the_states_of_the_table(
    module_database: Database, table: str, constraint: str, machine: StateTable
) -> None:
    assert checked(module_database, table, constraint) == set(machine.states)


def test_the_database_calls_finished_what_no_row_leaves(module_database: Database) -> None:
    assert checked(module_database, "workflow_runs", "finished_has_a_moment") == RUN.terminal
    assert set(FINISHED_STATES) == RUN.terminal
    assert set(RUN_STATES) == set(RUN.states)


def test_the_database_knows_exactly_the_compensations_that_the_engine_records(module_database: Database) -> None:
    table = "workflow_step_attempts"
    assert checked(module_database, table, "compensation_is_known") == set(get_args(CompensationState))
    assert checked(module_database, table, "strategy_is_known") == set(get_args(Strategy))


def test_every_state_can_be_reached_from_the_first(module_database: Database) -> None:
    for machine in (RUN, APPROVAL, REVISION, WORKFLOW):
        reached, before = {machine.states[0]}, set[str]()
        while reached != before:
            before = set(reached)
            reached |= {target for source, _, target in machine.rows if source in before}
        assert reached == set(machine.states)


# what runs really do


@pytest.fixture
def acme(module_database: Database) -> TestRealm:
    return a_realm(emptied(module_database))


_RECORDER = (
    "CREATE TABLE walked (source text, target text)",
    "GRANT INSERT ON walked TO tenure_app",
    """CREATE FUNCTION walk() RETURNS trigger LANGUAGE plpgsql AS
       $$ BEGIN INSERT INTO walked VALUES (OLD.state, NEW.state); RETURN NEW; END $$""",
    """CREATE TRIGGER walk AFTER UPDATE ON workflow_runs FOR EACH ROW
       WHEN (OLD.fence = NEW.fence AND OLD.lease_owner IS NOT NULL) EXECUTE FUNCTION walk()""",
)
"""The database itself writes down every move that a worker saves: under its fence, from its hands."""


def walked(acme: TestRealm) -> set[tuple[str, str]]:
    with acme.database.owner_engine.begin() as connection:
        return {(row[0], row[1]) for row in connection.exec_driver_sql("SELECT source, target FROM walked")}


def test_every_move_of_the_table_is_walked_by_some_run_and_no_other(
    acme: TestRealm, worker: Worker, httpserver: HTTPServer
) -> None:
    """One short run for each row of the table; together they walk all of it."""
    for statement in _RECORDER:
        owner(acme.database, statement)
    boss, endpoint = acme.user(), Endpoint(httpserver, acme)
    tell = step("notify", id="tell", recipients=...)
    fail = step("notify", id="fail", recipients="organization_owners")  # there is no organization
    wait, ask = step("wait", id="wait"), step("approval", id="ask", approvers=[boss])
    call = step("call_webhook", id="call", subscription_id=endpoint.subscription, timeout_ms=..., compensate=True)

    def begun(*steps: Json) -> str:
        run, _ = acme.run(acme.published(definition(*steps)), acme.user())
        drain(worker, acme)
        return run

    def decide(run: str) -> None:
        with acme.database.begin() as connection:
            approvals.decide(connection, acme.by(boss), approval_of(acme, run).id, "approve")
        drain(worker, acme)

    def end(run: str, state: str) -> None:
        assert run_of(acme, run).state == state

    end(begun(tell), "succeeded")  # pending: finish
    end(begun(tell, step("end")), "succeeded")  # pending: advance; running: finish
    end(begun(tell, tell | {"id": "b"}, tell | {"id": "c"}), "succeeded")  # running: advance
    end(begun(fail), "failed")  # pending: fail; compensating: settle_nothing
    end(begun(call, fail), "compensated")  # running: fail; compensating: undo, settle_undone

    endpoint.compensate = [Response(status=410)]
    end(begun(call, fail), "compensation_failed")  # compensating: settle_stuck

    run = begun(wait)  # pending: wait
    wake(acme, run)
    drain(worker, acme)
    end(run, "waiting")  # waiting: wait
    age(acme, run, hours=1)
    drain(worker, acme)
    end(run, "succeeded")  # waiting: finish

    run = begun(tell, wait, tell | {"id": "b"})  # running: wait
    age(acme, run, hours=1)
    drain(worker, acme)
    end(run, "succeeded")  # waiting: advance

    run = begun(wait)
    with acme.database.begin() as connection:
        runs.cancel(connection, acme.cause, run)
    drain(worker, acme)
    end(run, "cancelled")  # waiting: fail; compensating: settle_cancelled

    run = begun(ask)  # pending: ask
    wake(acme, run)
    drain(worker, acme)
    end(run, "awaiting_approval")  # awaiting_approval: ask
    decide(run)
    end(run, "succeeded")  # awaiting_approval: finish

    run = begun(tell, ask, tell | {"id": "b"})  # running: ask
    decide(run)
    end(run, "succeeded")  # awaiting_approval: advance

    run = begun(ask)
    age(acme, run, days=31)
    drain(worker, acme)
    end(run, "failed")  # awaiting_approval: fail

    assert walked(acme) == {(source, target) for source, _, target in RUN.rows}


def test_every_end_of_an_approval_is_reached(acme: TestRealm, worker: Worker) -> None:
    boss, subjects = acme.user(), acme.users(4)
    workflow = acme.published(definition(step("approval", approvers=[boss])))
    asked = [acme.run(workflow, subject)[0] for subject in subjects]
    drain(worker, acme)
    approved, rejected, expired, cancelled = asked
    with acme.database.begin() as connection:
        approvals.decide(connection, acme.by(boss), approval_of(acme, approved).id, "approve")
        approvals.decide(connection, acme.by(boss), approval_of(acme, rejected).id, "reject")
        runs.cancel(connection, acme.cause, cancelled)
    age(acme, expired, days=31)
    drain(worker, acme)
    found = {approval_of(acme, run).state for run in asked}
    assert found == APPROVAL.terminal


def test_a_revision_that_is_replaced_is_superseded(acme: TestRealm) -> None:
    workflow = acme.published(definition(step("end")))
    number = acme.revision(workflow, definition(step("suspend_user")))
    with acme.database.begin() as connection:
        revisions.publish(connection, acme.cause, workflow, number)
    found = rows(
        acme.database,
        "SELECT number, status FROM workflow_revisions WHERE workflow_id = :id ORDER BY number",
        id=workflow,
    )
    assert found == [(1, "superseded"), (2, "published")]
    (row,) = rows(acme.database, "SELECT state, published_revision FROM workflows WHERE id = :id", id=workflow)
    assert (row.state, row.published_revision) == ("active", 2)


def test_publishing_never_enables_a_disabled_workflow(acme: TestRealm) -> None:
    workflow = acme.published(definition(step("end")))
    owner(acme.database, "UPDATE workflows SET state = 'disabled' WHERE id = :id", id=workflow)
    number = acme.revision(workflow, definition(step("suspend_user")))
    with acme.database.begin() as connection:
        revisions.publish(connection, acme.cause, workflow, number)
    (row,) = rows(acme.database, "SELECT state, published_revision FROM workflows WHERE id = :id", id=workflow)
    assert (row.state, row.published_revision) == ("disabled", 2)
