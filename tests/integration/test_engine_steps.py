"""Every step type at work: what it changes, what it leaves when there is nothing to change, and what is recorded of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from engine.lifecycle import approvals
from engine.lifecycle.definition import canonical, parse
from engine.lifecycle.worker import Worker
from tests.definitions import Json, definition, event, step
from tests.driver import (
    AnyRow,
    age,
    approval_of,
    attempts_of,
    audit_of,
    drain,
    events_of,
    outcome,
    owner,
    rows,
    run_of,
    trail_of,
)
from tests.factories import TestRealm

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


@pytest.fixture
def sales(acme: TestRealm) -> str:
    return acme.organization()


@pytest.fixture
def ada(acme: TestRealm, sales: str) -> str:
    """The subject: a member of sales."""
    (ada,) = acme.users(1, sales)
    return ada


def played(
    acme: TestRealm, worker: Worker, subject: str, organization: str | None, *steps: Json, **members: Any
) -> str:
    """A run of these steps, to where it stops by itself."""
    run_id, _ = acme.run(acme.published(definition(*steps, **members)), subject, organization)
    drain(worker, acme)
    return run_id


def the_attempt(acme: TestRealm, run_id: str) -> AnyRow:
    """The only attempt of a run that succeeded."""
    assert outcome(acme, run_id) == ("succeeded", None)
    (attempt,) = attempts_of(acme, run_id)
    assert attempt.state == "succeeded"
    return attempt


def assert_unchanged(acme: TestRealm, run_id: str) -> None:
    """The step found its effect already there: no event, nothing to compensate."""
    attempt = the_attempt(acme, run_id)
    assert attempt.result["changed"] is False
    assert (attempt.compensation_strategy, attempt.compensation_state) == ("none", "not_needed")
    assert events_of(acme, run_id) == []
    assert trail_of(acme, run_id, "") == ["workflow.run.started", "workflow.step.succeeded", "workflow.run.succeeded"]


def assert_changed(acme: TestRealm, run_id: str, compensation: tuple[str, str], *events: str) -> AnyRow:
    """The step did something: these events tell of it, on the publisher's account and under the run's id."""
    attempt = the_attempt(acme, run_id)
    assert attempt.result["changed"] is True
    assert (attempt.compensation_strategy, attempt.compensation_state) == compensation
    told = events_of(acme, run_id)
    assert [row.type for row in told] == list(events)
    run = run_of(acme, run_id)
    for row in told:
        assert (row.user_id, row.caused_by_workflow, row.depth) == (run.subject_id, run.workflow_id, 0)
    assert trail_of(acme, run_id, "") == [
        "workflow.run.started",
        *events,
        "workflow.step.succeeded",
        "workflow.run.succeeded",
    ]
    for row in audit_of(acme, run_id):
        assert (row.actor_type, row.actor_id) == ("user", acme.admin)
        assert (row.request_id, row.correlation_id) == (run_id, run_id)
    return attempt


def assignments(acme: TestRealm, user_id: str) -> list[AnyRow]:
    query = "SELECT * FROM role_assignments WHERE realm_id = :realm AND user_id = :user ORDER BY granted_at"
    return rows(acme.database, query, realm=acme.id, user=user_id)


def groups_of(acme: TestRealm, user_id: str) -> list[AnyRow]:
    query = "SELECT * FROM group_members WHERE realm_id = :realm AND user_id = :user"
    return rows(acme.database, query, realm=acme.id, user=user_id)


def messages_of(acme: TestRealm, run_id: str) -> list[AnyRow]:
    query = "SELECT * FROM messages WHERE realm_id = :realm AND run_id = :run ORDER BY id"
    return rows(acme.database, query, realm=acme.id, run=run_id)


def expire(acme: TestRealm, user_id: str) -> None:
    """What the user holds for a time has been over since long ago; the sweep has not been by."""
    for table in ("role_assignments", "group_members"):
        owner(
            acme.database,
            f"UPDATE {table} SET expires_at = :then WHERE realm_id = :realm AND user_id = :user",
            then=LONG_AGO,
            realm=acme.id,
            user=user_id,
        )


# assign_role


def test_assign_role_grants_the_role_in_the_run_s_organization_until_it_expires(
    acme: TestRealm, worker: Worker, sales: str, ada: str
) -> None:
    role = acme.role(None, "org.members.read")
    run = played(acme, worker, ada, sales, step("assign_role", role_id=role, organization_id=..., expires_in="72h"))
    attempt = assert_changed(acme, run, ("undo", "pending"), "role.assignment.granted")
    (held,) = assignments(acme, ada)
    assert (held.role_id, held.scope, held.organization_id) == (role, "organization", sales)
    assert (held.granted_by, held.step_key) == (acme.admin, f"{run}.a")
    assert held.expires_at == attempt.started_at + timedelta(hours=72)
    assert attempt.result["assignment_id"] == held.id
    assert attempt.input == {
        "role_id": role,
        "scope": "organization",
        "organization_id": sales,
        "expires_in": "72h",
    }


def test_assign_role_of_the_realm_names_no_organization_though_the_run_has_one(
    acme: TestRealm, worker: Worker, sales: str, ada: str
) -> None:
    role = acme.role(None, "realm.users.read", boundary="realm")
    assign = step("assign_role", role_id=role, scope="realm", organization_id=..., expires_in=...)
    run = played(acme, worker, ada, sales, assign)
    attempt = assert_changed(acme, run, ("undo", "pending"), "role.assignment.granted")
    (held,) = assignments(acme, ada)
    assert (held.scope, held.organization_id, held.expires_at) == ("realm", None, None)
    assert "organization_id" not in attempt.input


def test_assign_role_acts_in_the_organization_that_the_step_pins(
    acme: TestRealm, worker: Worker, sales: str, ada: str
) -> None:
    support, role = acme.organization(None, ada), acme.role(None, "org.members.read")
    run = played(acme, worker, ada, sales, step("assign_role", role_id=role, organization_id=support))
    attempt = assert_changed(acme, run, ("undo", "pending"), "role.assignment.granted")
    assert [held.organization_id for held in assignments(acme, ada)] == [support]
    assert attempt.input["organization_id"] == support


def test_assign_role_leaves_a_role_that_is_held_already_as_it_is(
    acme: TestRealm, worker: Worker, sales: str, ada: str
) -> None:
    role = acme.role(None, "org.members.read")
    held = acme.grant(ada, role, sales)
    run = played(acme, worker, ada, sales, step("assign_role", role_id=role, organization_id=...))
    assert_unchanged(acme, run)
    assert [(row.id, row.expires_at, row.step_key) for row in assignments(acme, ada)] == [(held, None, None)]


def test_assign_role_is_a_change_for_one_who_holds_the_role_only_through_a_group(
    acme: TestRealm, worker: Worker, sales: str, ada: str
) -> None:
    role = acme.role(None, "org.members.read")
    acme.group(sales, roles=[role], members=[ada])
    run = played(acme, worker, ada, sales, step("assign_role", role_id=role, organization_id=...))
    assert_changed(acme, run, ("undo", "pending"), "role.assignment.granted")


def test_assign_role_replaces_an_assignment_that_has_expired(
    acme: TestRealm, worker: Worker, sales: str, ada: str
) -> None:
    worker.run_pass()  # its sweep is over for now
    role = acme.role(None, "org.members.read")
    gone = acme.grant(ada, role, sales)
    expire(acme, ada)
    run = played(acme, worker, ada, sales, step("assign_role", role_id=role, organization_id=..., expires_in=...))
    assert the_attempt(acme, run).result["changed"] is True
    (held,) = assignments(acme, ada)
    assert held.id != gone
    assert held.expires_at is None
    expired, granted = rows(
        acme.database,
        "SELECT * FROM audit_events WHERE realm_id = :realm AND type IN"
        " ('role.assignment.expired', 'role.assignment.granted') AND details ->> 'role_id' = :role"
        " ORDER BY position OFFSET 1",
        realm=acme.id,
        role=role,
    )
    assert (expired.type, expired.actor_type) == ("role.assignment.expired", "system")
    assert (granted.type, granted.actor_id) == ("role.assignment.granted", acme.admin)


def test_a_role_that_requires_approval_takes_the_decider_of_the_run_s_latest_approval(
    acme: TestRealm, worker: Worker, sales: str, ada: str
) -> None:
    role = acme.role(None, "org.members.read", requires_approval=True)
    first, second = acme.holder(acme.roles["realm-admin"]), acme.holder(acme.roles["realm-admin"])
    steps = [
        step("approval", id="one", approvers=[acme.admin, first]),
        step("approval", id="two", approvers=[second]),
        step("assign_role", role_id=role, organization_id=...),
    ]
    run = played(acme, worker, ada, sales, *steps)
    for who in (acme.admin, second):  # the publisher is no independent approver, but the latest decision counts
        decide(acme, run, who, "approve")
        drain(worker, acme)
    assert outcome(acme, run) == ("succeeded", None)
    assert [held.role_id for held in assignments(acme, ada)] == [role]
    assert run_of(acme, run).context == {"approver": second}


# remove_role


def test_remove_role_revokes_the_role_in_that_scope_alone(
    acme: TestRealm, worker: Worker, sales: str, ada: str
) -> None:
    role, support = acme.role(None, "org.members.read"), acme.organization(None, ada)
    acme.grant(ada, role, sales)
    kept = acme.grant(ada, role, support)
    remove = step("remove_role", role_id=role, scope="organization")
    run = played(acme, worker, ada, sales, remove)
    attempt = assert_changed(acme, run, ("none", "not_needed"), "role.assignment.revoked")
    assert [held.id for held in assignments(acme, ada)] == [kept]
    assert attempt.input == {"role_id": role, "scope": "organization", "organization_id": sales}


def test_remove_role_of_the_realm_revokes_it(acme: TestRealm, worker: Worker, ada: str) -> None:
    role = acme.role(None, "realm.users.read", boundary="realm")
    acme.grant(ada, role)
    run = played(acme, worker, ada, None, step("remove_role", role_id=role))
    assert_changed(acme, run, ("none", "not_needed"), "role.assignment.revoked")
    assert assignments(acme, ada) == []


@pytest.mark.parametrize("expired", [False, True])
def test_remove_role_has_nothing_to_do_where_the_role_is_not_held_any_more(
    acme: TestRealm, worker: Worker, sales: str, ada: str, expired: bool
) -> None:
    worker.run_pass()
    role = acme.role(None, "org.members.read")
    if expired:
        acme.grant(ada, role, sales)
        expire(acme, ada)
    run = played(acme, worker, ada, sales, step("remove_role", role_id=role, scope="organization"))
    assert_unchanged(acme, run)


# add_to_group and remove_from_group


def test_add_to_group_takes_the_subject_in_until_it_expires(
    acme: TestRealm, worker: Worker, sales: str, ada: str
) -> None:
    team = acme.group(sales)
    run = played(acme, worker, ada, sales, step("add_to_group", group_id=team, organization_id=..., expires_in="72h"))
    attempt = assert_changed(acme, run, ("undo", "pending"), "group.membership.added")
    (member,) = groups_of(acme, ada)
    assert (member.group_id, member.organization_id, member.added_by) == (team, sales, acme.admin)
    assert (member.step_key, member.expires_at) == (f"{run}.a", attempt.started_at + timedelta(hours=72))
    assert attempt.input == {"group_id": team, "organization_id": sales, "expires_in": "72h"}


def test_add_to_group_acts_in_the_organization_that_the_step_pins(
    acme: TestRealm, worker: Worker, sales: str, ada: str
) -> None:
    team = acme.group(sales)
    add = step("add_to_group", group_id=team, organization_id=sales, expires_in=...)
    run = played(acme, worker, ada, acme.organization(), add)
    assert_changed(acme, run, ("undo", "pending"), "group.membership.added")
    assert [(member.organization_id, member.expires_at) for member in groups_of(acme, ada)] == [(sales, None)]


def test_add_to_group_leaves_a_member_as_it_is(acme: TestRealm, worker: Worker, sales: str, ada: str) -> None:
    team = acme.group(sales, members=[ada])
    run = played(acme, worker, ada, sales, step("add_to_group", group_id=team, organization_id=...))
    assert_unchanged(acme, run)
    assert [(member.expires_at, member.step_key) for member in groups_of(acme, ada)] == [(None, None)]


def test_add_to_group_replaces_a_membership_that_has_expired(
    acme: TestRealm, worker: Worker, sales: str, ada: str
) -> None:
    worker.run_pass()
    team = acme.group(sales, members=[ada])
    expire(acme, ada)
    run = played(acme, worker, ada, sales, step("add_to_group", group_id=team, organization_id=..., expires_in=...))
    assert the_attempt(acme, run).result["changed"] is True
    assert [(member.expires_at, member.step_key) for member in groups_of(acme, ada)] == [(None, f"{run}.a")]


def test_remove_from_group_lets_the_subject_go(acme: TestRealm, worker: Worker, sales: str, ada: str) -> None:
    team, other = acme.group(sales, members=[ada]), acme.group(sales, members=[ada])
    run = played(acme, worker, ada, sales, step("remove_from_group", group_id=team, organization_id=...))
    assert_changed(acme, run, ("none", "not_needed"), "group.membership.removed")
    assert [member.group_id for member in groups_of(acme, ada)] == [other]


def test_remove_from_group_has_nothing_to_do_for_one_who_is_not_in_it(
    acme: TestRealm, worker: Worker, sales: str, ada: str
) -> None:
    team = acme.group(sales)
    run = played(acme, worker, ada, sales, step("remove_from_group", group_id=team, organization_id=...))
    assert_unchanged(acme, run)


# remove_membership and suspend_user


def test_remove_membership_ends_it_with_its_groups_and_organization_roles(
    acme: TestRealm, worker: Worker, sales: str, ada: str
) -> None:
    role, support = acme.role(None, "org.members.read"), acme.organization(None, ada)
    acme.grant(ada, role, sales)
    acme.grant(ada, acme.roles["realm-auditor"])
    acme.grant(ada, role, support)
    acme.group(sales, members=[ada])
    elsewhere = acme.group(support, members=[ada])
    run = played(acme, worker, ada, sales, step("remove_membership", organization_id=...))
    assert_changed(
        acme,
        run,
        ("none", "not_needed"),
        "group.membership.removed",
        "role.assignment.revoked",
        "organization.membership.removed",
    )
    assert {held.organization_id for held in assignments(acme, ada)} == {None, support}
    assert [member.group_id for member in groups_of(acme, ada)] == [elsewhere]


def test_remove_membership_has_nothing_to_do_for_one_who_is_no_member(
    acme: TestRealm, worker: Worker, sales: str
) -> None:
    run = played(acme, worker, acme.user(), sales, step("remove_membership", organization_id=...))
    assert_unchanged(acme, run)


def test_suspend_user_suspends_the_account(acme: TestRealm, worker: Worker, ada: str) -> None:
    run = played(acme, worker, ada, None, step("suspend_user"))
    attempt = assert_changed(acme, run, ("none", "not_needed"), "user.suspended")
    (user,) = rows(acme.database, "SELECT * FROM users WHERE id = :ada", ada=ada)
    assert (user.state, user.suspended_at) == ("suspended", attempt.started_at)
    assert attempt.input == {}


def test_suspend_user_has_nothing_to_do_for_a_suspended_account(acme: TestRealm, worker: Worker) -> None:
    assert_unchanged(acme, played(acme, worker, acme.user(state="suspended"), None, step("suspend_user")))


# notify


def test_notify_queues_one_message_for_the_subject(acme: TestRealm, worker: Worker, ada: str) -> None:
    run = played(acme, worker, ada, None, step("notify", recipients=...))
    attempt = assert_changed(acme, run, ("impossible", "impossible"))
    (message,) = messages_of(acme, run)
    assert (message.recipient_id, message.notice, message.state) == (ada, "welcome", "queued")
    assert message.step_key == f"{run}.a"
    assert attempt.result["message_ids"] == [message.id]
    assert attempt.input == {"notice": "welcome"}


def test_notify_writes_to_every_approver_of_the_definition_once(acme: TestRealm, worker: Worker, ada: str) -> None:
    first, second, away = acme.user(), acme.user(), acme.user()
    steps = [
        step("notify", id="tell"),
        step("end"),
        step("approval", id="one", approvers=[first, second]),
        step("approval", id="two", approvers=[second, away]),
    ]
    workflow = acme.published(definition(*steps))
    suspend(acme, away)
    run, _ = acme.run(workflow, ada)
    drain(worker, acme)
    assert outcome(acme, run) == ("succeeded", None)
    assert sorted(message.recipient_id for message in messages_of(acme, run)) == sorted([first, second])


def test_notify_changes_nothing_when_none_of_those_meant_can_be_written_to(
    acme: TestRealm, worker: Worker, ada: str
) -> None:
    away = acme.user()
    workflow = acme.published(
        definition(step("notify"), step("end", id="b"), step("approval", id="c", approvers=[away]))
    )
    suspend(acme, away)
    run, _ = acme.run(workflow, ada)
    drain(worker, acme)
    told, _ = attempts_of(acme, run)
    assert outcome(acme, run) == ("succeeded", None)
    assert (told.result["changed"], told.result["message_ids"]) == (False, [])
    assert (told.compensation_strategy, told.compensation_state) == ("none", "not_needed")
    assert messages_of(acme, run) == []


def test_notify_writes_to_the_owners_of_the_run_s_organization(
    acme: TestRealm, worker: Worker, sales: str, ada: str
) -> None:
    owners = [acme.holder(acme.roles["org-owner"], sales) for _ in range(2)]
    acme.holder(acme.roles["org-owner"], acme.organization())
    run = played(acme, worker, ada, sales, step("notify", recipients="organization_owners"))
    assert_changed(acme, run, ("impossible", "impossible"))
    assert sorted(message.recipient_id for message in messages_of(acme, run)) == sorted(owners)


def test_notify_passes_over_owners_who_cannot_sign_in(acme: TestRealm, worker: Worker, sales: str, ada: str) -> None:
    here, away = (acme.holder(acme.roles["org-owner"], sales) for _ in range(2))
    suspend(acme, away)
    run = played(acme, worker, ada, sales, step("notify", recipients="organization_owners"))
    assert [message.recipient_id for message in messages_of(acme, run)] == [here]


# approval, wait, end


def test_approval_parks_the_run_until_an_approver_decides(
    acme: TestRealm, worker: Worker, sales: str, ada: str
) -> None:
    boss, deputy = acme.user(), acme.user()
    asked = step("approval", approvers=[boss, deputy, ada], expires_in="72h")
    run = played(acme, worker, ada, sales, asked)
    row, approval = run_of(acme, run), approval_of(acme, run)
    assert row.state == "awaiting_approval"
    assert approval.approvers == [boss, deputy]  # the subject is never one
    assert (approval.subject_id, approval.organization_id, approval.state) == (ada, sales, "pending")
    (begun,) = attempts_of(acme, run)
    assert (begun.state, begun.max_attempts) == ("started", 1)
    assert row.due_at == approval.expires_at == begun.started_at + timedelta(hours=72)

    decide(acme, run, deputy, "approve")
    drain(worker, acme)
    attempt = the_attempt(acme, run)
    assert attempt.id == begun.id
    assert attempt.result == {"changed": True, "approval_id": approval.id, "decided_by": deputy}
    assert (attempt.compensation_strategy, attempt.compensation_state) == ("none", "not_needed")
    told = [(row.type, row.actor_id, row.category) for row in audit_of(acme, run) if "approval" in row.type]
    assert told == [("workflow.approval.requested", acme.admin, "authorization")]
    approved = audit_about(acme, approval.id)[-1]
    assert (approved.type, approved.actor_id, approved.category) == (
        "workflow.approval.approved",
        deputy,
        "authorization",
    )


def test_wait_parks_the_run_for_its_time_by_the_database_s_clock(acme: TestRealm, worker: Worker, ada: str) -> None:
    run = played(acme, worker, ada, None, step("wait", **{"for": "48h"}))
    row = run_of(acme, run)
    (begun,) = attempts_of(acme, run)
    assert row.state == "waiting"
    assert row.due_at == begun.started_at + timedelta(hours=48)
    age(acme, run, hours=47, minutes=59)
    drain(worker, acme)
    assert run_of(acme, run).state == "waiting"
    age(acme, run, minutes=1)
    drain(worker, acme)
    attempt = the_attempt(acme, run)
    assert attempt.id == begun.id
    assert (attempt.compensation_strategy, attempt.compensation_state) == ("none", "not_needed")


def test_wait_needs_neither_a_subject_nor_an_authority(acme: TestRealm, worker: Worker, ada: str) -> None:
    publisher = acme.holder(acme.roles["realm-admin"])
    workflow = acme.published(definition(step("wait")), publisher=publisher)
    run, _ = acme.run(workflow, ada)
    drain(worker, acme)
    acme.revoke(publisher, acme.roles["realm-admin"])
    owner(acme.database, "UPDATE users SET state = 'deleted' WHERE id = :ada", ada=ada)
    age(acme, run, hours=1)
    drain(worker, acme)
    assert outcome(acme, run) == ("succeeded", None)


def test_end_ends_the_run_whatever_comes_behind_it(acme: TestRealm, worker: Worker, ada: str) -> None:
    run = played(acme, worker, ada, None, step("end"), step("suspend_user", id="b"))
    attempt = assert_changed(acme, run, ("none", "not_needed"))
    assert (attempt.step_type, attempt.step_index) == ("end", 0)
    assert rows(acme.database, "SELECT state FROM users WHERE id = :ada", ada=ada) == [("active",)]


# what is recorded of attempts


def test_an_attempt_records_its_key_its_policy_and_the_version_of_its_input(
    acme: TestRealm, worker: Worker, ada: str
) -> None:
    own = step("suspend_user", id="own", retry={"max_attempts": 7, "backoff": "2m"})
    shared, last = step("notify", id="shared", recipients=...), step("end", id="last")
    given = definition(own, shared, last, retry={"max_attempts": 4, "backoff": "90s"})
    workflow = acme.published(given)
    run, _ = acme.run(workflow, ada)
    drain(worker, acme)
    recorded = attempts_of(acme, run)
    assert [(row.step_id, row.max_attempts, row.backoff_ms) for row in recorded] == [
        ("own", 7, 120_000),
        ("shared", 4, 90_000),
        ("last", 1, 30_000),
    ]
    sha256 = canonical(parse(given)).sha256
    for index, row in enumerate(recorded):
        assert row.id.startswith("wsa_")
        assert (row.step_index, row.attempt) == (index, 1)
        assert row.idempotency_key == f"{run}.{row.step_id}"
        assert row.input_version == f"r1:{sha256[:16]}:i1"
        assert row.started_at == row.finished_at


def test_a_run_that_an_event_started_carries_the_event_s_version(acme: TestRealm, worker: Worker) -> None:
    acme.published(definition(step("end"), triggers=[event("user.suspended")]))
    ada = acme.user(state="suspended")
    owner(
        acme.database,
        "UPDATE outbox_events SET event_version = 7 WHERE realm_id = :realm AND user_id = :ada",
        realm=acme.id,
        ada=ada,
    )
    drain(worker, acme)
    (run,) = rows(acme.database, "SELECT * FROM workflow_runs WHERE realm_id = :realm", realm=acme.id)
    (attempt,) = attempts_of(acme, run.id)
    assert run.input_version == 7
    assert attempt.input_version.endswith(":i7")
    assert run.input == {"user_id": ada, "event_id": run.event_id, "event_type": "user.suspended"}


def test_steps_of_one_batch_behave_as_if_their_runs_had_gone_one_after_another(
    acme: TestRealm, worker: Worker, sales: str, ada: str
) -> None:
    """Two runs grant the same role to the same user at once, and two take it away."""
    role = acme.role(None, "org.members.read")
    grant = acme.published(definition(step("assign_role", role_id=role, organization_id=...)))
    remove = acme.published(definition(step("remove_role", role_id=role, scope="organization")))
    runs = [acme.run(workflow, ada, sales)[0] for workflow in (grant, grant, remove, remove)]
    drain(worker, acme)
    assert [attempts_of(acme, run)[0].result["changed"] for run in runs] == [True, False, True, False]
    assert [len(attempts_of(acme, run)) for run in runs] == [1, 1, 1, 1]
    assert assignments(acme, ada) == []


def test_a_step_whose_success_is_recorded_is_skipped_and_never_applied_again(
    acme: TestRealm, worker: Worker, sales: str, ada: str
) -> None:
    team = acme.group(sales)
    run = played(
        acme, worker, ada, sales, step("add_to_group", group_id=team, organization_id=...), step("wait", id="b")
    )
    owner(acme.database, "UPDATE workflow_runs SET step_index = 0, state = 'running' WHERE id = :run", run=run)
    owner(acme.database, "DELETE FROM group_members WHERE user_id = :ada", ada=ada)
    age(acme, run, hours=1)
    drain(worker, acme)
    assert outcome(acme, run) == ("succeeded", None)
    assert groups_of(acme, ada) == []
    assert [(row.step_type, row.attempt) for row in attempts_of(acme, run)] == [("add_to_group", 1), ("wait", 1)]


def decide(acme: TestRealm, run_id: str, user_id: str, verdict: Any) -> None:
    with acme.database.begin() as connection:
        approvals.decide(connection, acme.by(user_id), approval_of(acme, run_id).id, verdict)


def suspend(acme: TestRealm, user_id: str) -> None:
    owner(
        acme.database,
        "UPDATE users SET state = 'suspended', suspended_at = clock_timestamp() WHERE id = :user",
        user=user_id,
    )


def audit_about(acme: TestRealm, target: str) -> list[AnyRow]:
    query = "SELECT * FROM audit_events WHERE realm_id = :realm AND target_id = :target ORDER BY position"
    return rows(acme.database, query, realm=acme.id, target=target)
