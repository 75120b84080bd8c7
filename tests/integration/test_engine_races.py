"""Authority that changes while a step is at work: in commit order, no effect without it (FAULTS.md, 16)."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from sqlalchemy import Connection

from db.session import Database
from engine.directory import roles
from engine.directory.acts import perform
from engine.directory.facts import Wanted
from engine.lifecycle.worker import Worker
from tests.definitions import definition, step
from tests.driver import emptied, outcome, owner, rows, trail_of, until, waiting, working
from tests.factories import TestRealm, a_realm


@pytest.fixture
def acme(module_database: Database) -> TestRealm:
    return a_realm(emptied(module_database))


@pytest.fixture
def worker(module_database: Database) -> Iterator[Worker]:
    with working(module_database) as worker:
        yield worker


def revoke(acme: TestRealm, connection: Connection, user: str, role: str) -> None:
    wanted = Wanted(changing={acme.key(user)}, roles={acme.key(role)})
    perform(connection, wanted, lambda facts: roles.revoke(facts, acme.cause, acme.key(user), role, None))


def a_grant(acme: TestRealm) -> tuple[str, str, str, str, str]:
    """A run that is about to grant a role: the run, its subject and publisher, the publisher's role, the organization."""
    sales, role, rights = acme.organization(), acme.role(None, "org.members.read"), acme.roles["realm-admin"]
    (ada,) = acme.users(1, sales)
    publisher = acme.holder(rights)
    grant = step("assign_role", role_id=role, organization_id=...)
    run, _ = acme.run(acme.published(definition(grant), publisher=publisher), ada, sales)
    owner(acme.database, "UPDATE outbox_events SET dispatched_at = now()")
    return run, ada, publisher, rights, sales


def test_a_revocation_that_comes_first_is_waited_for_and_counts(acme: TestRealm, worker: Worker) -> None:
    run, ada, publisher, rights, _ = a_grant(acme)
    passing = threading.Thread(target=worker.run_pass)
    with acme.database.begin() as connection:
        revoke(acme, connection, publisher, rights)
        passing.start()
        until(lambda: waiting(acme))
    passing.join()
    assert outcome(acme, run) == ("failed", "publisher_lacks_authority")
    assert rows(acme.database, "SELECT 1 FROM role_assignments WHERE user_id = :ada", ada=ada) == []


def test_a_revocation_that_comes_later_waits_for_the_effect(acme: TestRealm, worker: Worker) -> None:
    run, ada, publisher, rights, sales = a_grant(acme)
    passing = threading.Thread(target=worker.run_pass)
    revoking = threading.Thread(target=acme.revoke, args=(publisher, rights))
    with acme.database.owner_engine.begin() as blocker:  # the last thing that the step locks
        blocker.exec_driver_sql("SELECT 1 FROM organizations WHERE id = %s FOR UPDATE", (sales,))
        passing.start()
        until(lambda: waiting(acme))
        revoking.start()
        until(lambda: waiting(acme, 2))
    passing.join()
    revoking.join()
    assert outcome(acme, run) == ("succeeded", None)
    assert len(rows(acme.database, "SELECT 1 FROM role_assignments WHERE user_id = :ada", ada=ada)) == 1
    order = rows(
        acme.database,
        "SELECT type, target_id FROM audit_events WHERE type LIKE 'role.assignment.%' ORDER BY position DESC LIMIT 2",
    )
    assert order == [("role.assignment.revoked", publisher), ("role.assignment.granted", ada)]


def test_a_role_that_grows_while_it_is_granted_waits_for_the_effect(acme: TestRealm, worker: Worker) -> None:
    run, _, _, _, sales = a_grant(acme)
    (role,) = rows(acme.database, "SELECT id FROM roles WHERE realm_id = :realm AND NOT built_in", realm=acme.id)
    passing = threading.Thread(target=worker.run_pass)
    grow = "UPDATE roles SET permissions = '{org.*}' WHERE id = :role"
    growing = threading.Thread(target=owner, args=(acme.database, grow), kwargs={"role": role.id})
    with acme.database.owner_engine.begin() as blocker:
        blocker.exec_driver_sql("SELECT 1 FROM organizations WHERE id = %s FOR UPDATE", (sales,))
        passing.start()
        until(lambda: waiting(acme))
        growing.start()
        until(lambda: waiting(acme, 2))
    passing.join()
    growing.join()
    assert outcome(acme, run) == ("succeeded", None)


def test_a_workflow_that_is_disabled_while_a_step_is_at_work_waits_for_it_and_holds_the_next(
    acme: TestRealm, worker: Worker
) -> None:
    sales, role = acme.organization(), acme.role(None, "org.members.read")
    (ada,) = acme.users(1, sales)
    steps = [step("assign_role", role_id=role, organization_id=...), step("suspend_user", id="b")]
    workflow = acme.published(definition(*steps))
    run, _ = acme.run(workflow, ada, sales)
    owner(acme.database, "UPDATE outbox_events SET dispatched_at = now()")
    passing = threading.Thread(target=worker.run_pass)
    disable = "UPDATE workflows SET state = 'disabled' WHERE id = :id"
    disabling = threading.Thread(target=owner, args=(acme.database, disable), kwargs={"id": workflow})
    with acme.database.owner_engine.begin() as blocker:
        blocker.exec_driver_sql("SELECT 1 FROM organizations WHERE id = %s FOR UPDATE", (sales,))
        passing.start()
        until(lambda: waiting(acme))
        disabling.start()
        until(lambda: waiting(acme, 2))
    passing.join()
    disabling.join()
    (row,) = rows(acme.database, "SELECT state, step_index, paused FROM workflow_runs WHERE id = :run", run=run)
    assert row in [("running", 1, True), ("succeeded", 1, False)]  # whoever locks the workflow next
    assert trail_of(acme, run).count("workflow.step.succeeded") == (1 if row.paused else 2)
