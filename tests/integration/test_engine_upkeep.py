"""What keeps a realm tidy: the sweep of what has expired, and the cleaning of history."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

import pytest

from db.session import Database
from engine.directory.sweep import sweep
from engine.lifecycle import approvals
from engine.lifecycle.retention import HISTORY, clean
from engine.lifecycle.worker import Worker
from tests.definitions import definition, event, step
from tests.driver import (
    AnyRow,
    age,
    approval_of,
    attempts_of,
    drain,
    emptied,
    many_runs,
    owner,
    rows,
    run_of,
    trail_of,
    trigger,
)
from tests.factories import TestRealm, a_realm


@pytest.fixture
def acme(module_database: Database) -> TestRealm:
    return a_realm(emptied(module_database))


def expire(acme: TestRealm, user_id: str) -> None:
    """Whatever the user holds has expired a moment ago."""
    for table in ("role_assignments", "group_members"):
        owner(
            acme.database,
            f"UPDATE {table} SET expires_at = now() - interval '1 ms' WHERE user_id = :user",
            user=user_id,
        )


def events(acme: TestRealm, *types: str) -> list[AnyRow]:
    query = "SELECT * FROM outbox_events WHERE realm_id = :realm AND type = ANY(:types) ORDER BY position"
    return rows(acme.database, query, realm=acme.id, types=list(types))


def held(acme: TestRealm, table: str) -> Counter[str]:
    return Counter(
        row.user_id for row in rows(acme.database, f"SELECT user_id FROM {table} WHERE realm_id = :r", r=acme.id)
    )


# the sweep


def test_the_sweep_takes_what_has_expired_and_tells_the_realm(acme: TestRealm, worker: Worker) -> None:
    sales, role = acme.organization(), acme.role(None, "org.members.read")
    ada, bob = acme.users(2, sales)
    team = acme.group(sales, members=[ada, bob])
    assignment = acme.grant(ada, role, sales)
    acme.grant(bob, role, sales)
    expire(acme, ada)
    owner(
        acme.database,
        "UPDATE role_assignments SET expires_at = now() + interval '1 hour' WHERE user_id = :bob",
        bob=bob,
    )
    assert worker.run_pass().swept == 2
    assert held(acme, "role_assignments") == {bob: 1, acme.admin: 1}
    assert held(acme, "group_members") == {bob: 1}
    expired, removed = events(acme, "role.assignment.expired", "group.membership.removed")
    assert (expired.type, expired.user_id, expired.organization_id) == ("role.assignment.expired", ada, sales)
    assert expired.payload == {"assignment_id": assignment, "role_id": role, "organization_id": sales}
    assert (removed.type, removed.user_id, removed.organization_id) == ("group.membership.removed", ada, sales)
    assert removed.payload == {"group_id": team, "organization_id": sales, "reason": "expired"}
    for row in (expired, removed):
        assert (row.correlation_id, row.caused_by_workflow, row.depth) == (None, None, 0)
    told = rows(
        acme.database,
        "SELECT type, actor_type, actor_id FROM audit_events WHERE target_id = :ada ORDER BY position DESC LIMIT 2",
        ada=ada,
    )
    assert sorted(told) == [("group.membership.removed", "system", None), ("role.assignment.expired", "system", None)]
    assert sweep(acme.database) == 0


def test_what_a_step_granted_for_a_time_is_swept_and_starts_who_listens(acme: TestRealm, worker: Worker) -> None:
    sales, role = acme.organization(), acme.role(None, "org.members.read")
    (ada,) = acme.users(1, sales)
    grant = step("assign_role", role_id=role, organization_id=..., expires_in="1h")
    listening = acme.published(definition(step("end"), triggers=[event("role.assignment.expired")]))
    acme.run(acme.published(definition(grant)), ada, sales)
    drain(worker, acme)
    expire(acme, ada)
    assert sweep(acme.database) == 1
    drain(worker, acme)
    (run,) = rows(acme.database, "SELECT * FROM workflow_runs WHERE workflow_id = :id", id=listening)
    assert (run.subject_id, run.organization_id, run.depth, run.state) == (ada, sales, 0, "succeeded")


def test_the_sweep_takes_more_than_one_page_in_turns(acme: TestRealm) -> None:
    role, members = acme.role(None, "realm.users.read", boundary="realm"), acme.users(600)
    owner(
        acme.database,
        "INSERT INTO role_assignments (realm_id, id, role_id, user_id, scope, expires_at)"
        " SELECT :realm, 'ras_' || substr(user_id, 5), :role, user_id, 'realm', now()"
        " FROM unnest(CAST(:users AS text[])) AS user_id",
        realm=acme.id,
        role=role,
        users=members,
    )
    assert [sweep(acme.database) for _ in range(3)] == [500, 100, 0]
    assert Counter(row.user_id for row in events(acme, "role.assignment.expired")) == Counter(members)


def test_what_cannot_be_swept_keeps_nothing_else_and_stops_no_worker(acme: TestRealm, worker: Worker) -> None:
    role = acme.role(None, "realm.users.read", boundary="realm")
    stuck, *others = [acme.holder(role) for _ in range(4)]
    for user in (stuck, *others):
        expire(acme, user)
    keep = "IF OLD.user_id = '" + stuck + "' THEN RAISE EXCEPTION 'kept'; END IF; RETURN OLD;"
    with trigger(acme.database, "BEFORE DELETE ON role_assignments", keep):
        assert worker.run_pass().swept == 3
    assert set(held(acme, "role_assignments")) == {acme.admin, stuck}
    assert sorted(row.user_id for row in events(acme, "role.assignment.expired")) == sorted(others)


def test_what_has_expired_counts_for_nothing_before_it_is_swept(acme: TestRealm, worker: Worker) -> None:
    worker.run_pass()  # its sweep is over for now
    ada, publisher = acme.user(), acme.holder(acme.roles["realm-admin"])
    run, _ = acme.run(acme.published(definition(step("suspend_user")), publisher=publisher), ada)
    expire(acme, publisher)
    drain(worker, acme)
    assert run_of(acme, run).error_category == "publisher_lacks_authority"
    assert publisher in held(acme, "role_assignments")


# retention


def test_finished_runs_go_with_their_attempts_and_approvals_once_they_are_old_and_their_audit_stays(
    acme: TestRealm, worker: Worker
) -> None:
    boss, subjects = acme.user(), acme.users(3)
    workflow = acme.published(definition(step("approval", approvers=[boss]), step("notify", id="b", recipients=...)))
    old, young, unfinished = many_runs(acme, workflow, subjects)
    drain(worker, acme)
    for run in (old, young):
        with acme.database.begin() as connection:
            approvals.decide(connection, acme.by(boss), approval_of(acme, run).id, "approve")
    drain(worker, acme)
    trail = trail_of(acme, old, "")
    for run, days in ((old, 181), (young, 179), (unfinished, 400)):
        owner(
            acme.database,
            "UPDATE workflow_runs SET created_at = created_at - :by, finished_at = finished_at - :by WHERE id = :run",
            by=timedelta(days=days),
            run=run,
        )
    assert clean(acme.database)["runs"] == 1
    assert [row.id for row in rows(acme.database, "SELECT id FROM workflow_runs ORDER BY id")] == [young, unfinished]
    for table in ("workflow_step_attempts", "workflow_approvals"):
        assert rows(acme.database, f"SELECT 1 FROM {table} WHERE run_id = :run", run=old) == []
        assert len(rows(acme.database, f"SELECT 1 FROM {table} WHERE run_id = :run", run=young)) >= 1
    assert trail_of(acme, old, "") == trail
    assert attempts_of(acme, young)[0].state == "succeeded"


def test_dispatched_events_and_ended_messages_go_and_what_is_still_to_do_stays(acme: TestRealm, worker: Worker) -> None:
    many_runs(acme, acme.published(definition(step("notify", recipients=...))), acme.users(3))
    drain(worker, acme)
    waiting = acme.user()  # whose event is not dispatched
    first, second = (row.id for row in rows(acme.database, "SELECT id FROM messages ORDER BY id LIMIT 2"))
    end = "UPDATE messages SET state = 'sent', due_at = NULL, ended_at = now() - :age WHERE id = :id"
    owner(acme.database, end, age=HISTORY + timedelta(days=1), id=first)
    owner(acme.database, end, age=HISTORY - timedelta(days=1), id=second)
    owner(acme.database, "UPDATE outbox_events SET dispatched_at = now() - :age", age=HISTORY + timedelta(days=1))
    owner(acme.database, "UPDATE outbox_events SET dispatched_at = NULL WHERE user_id = :id", id=waiting)
    gone = len(rows(acme.database, "SELECT 1 FROM outbox_events WHERE dispatched_at IS NOT NULL"))
    assert clean(acme.database) == {"runs": 0, "outbox": gone, "set_aside": 0, "messages": 1, "keys": 0, "workflows": 0}
    assert [row.user_id for row in rows(acme.database, "SELECT user_id FROM outbox_events")] == [waiting]
    assert len(rows(acme.database, "SELECT 1 FROM messages")) == 2


def test_history_is_deleted_in_short_transactions_that_tell_how_far_they_are(acme: TestRealm) -> None:
    workflow = acme.published(definition(step("wait")))
    many_runs(acme, workflow, acme.users(600))
    owner(
        acme.database, "UPDATE workflow_runs SET state = 'failed', due_at = NULL, finished_at = now() - interval '2 h'"
    )
    owner(acme.database, "UPDATE outbox_events SET dispatched_at = now()")
    told: list[int] = []
    assert clean(acme.database, older_than=timedelta(hours=1), progress=told.append)["runs"] == 600
    assert told == [500, 100, 0, 0, 0, 0, 0]


def test_a_run_that_was_cleaned_may_be_started_again(acme: TestRealm, worker: Worker) -> None:
    """Its key is forgotten with it: keys hold as long as history does."""
    workflow, ada = acme.published(definition(step("end"))), acme.user()
    first, _ = acme.run(workflow, ada, key="once")
    drain(worker, acme)
    assert acme.run(workflow, ada, key="once") == (first, False)
    age(acme, first, days=181)
    owner(acme.database, "UPDATE idempotency_keys SET created_at = created_at - :by", by=timedelta(days=181))
    assert clean(acme.database)["keys"] == 1
    again, new = acme.run(workflow, ada, key="once")
    assert new
    assert again != first
