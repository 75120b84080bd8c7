"""Every way in which the world says no to a step: the category, and a run that ends `failed` with nothing undone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from engine.lifecycle import approvals
from engine.lifecycle.worker import Worker
from tests.definitions import Json, definition, step
from tests.driver import (
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
    wake,
    working,
)
from tests.factories import TestRealm

REFUSED = [
    "workflow.run.started",
    "workflow.step.failed",
    "workflow.run.failed",
    "workflow.run.failed",  # the second one ends the run: there was nothing to undo
]


@pytest.fixture
def sales(acme: TestRealm) -> str:
    return acme.organization()


@pytest.fixture
def ada(acme: TestRealm, sales: str) -> str:
    """The subject: a member of sales."""
    (ada,) = acme.users(1, sales)
    return ada


def refused(
    acme: TestRealm,
    worker: Worker,
    subject: str,
    organization: str | None,
    *steps: Json,
    meanwhile: Callable[[], object] = lambda: None,
    publisher: str | None = None,
    trail: list[str] = REFUSED,
) -> str:
    """The category with which such a run fails at its first try, when `meanwhile` happens before the worker comes."""
    run_id, _ = acme.run(acme.published(definition(*steps), publisher=publisher), subject, organization)
    meanwhile()
    drain(worker, acme)
    return failed_with(acme, run_id, trail)


def failed_with(acme: TestRealm, run_id: str, trail: list[str] = REFUSED) -> str:
    """The category of a run that failed for good at its last attempt, having done nothing to the directory."""
    *before, attempt = attempts_of(acme, run_id)
    assert all(row.state == "succeeded" for row in before)
    assert (attempt.state, attempt.attempt) == ("failed", 1)
    assert attempt.error_message
    assert (attempt.compensation_strategy, attempt.compensation_state) == ("none", "not_needed")
    assert outcome(acme, run_id) == ("failed", attempt.error_category)
    assert run_of(acme, run_id).last_error == attempt.error_message
    assert events_of(acme, run_id) == []
    assert trail_of(acme, run_id) == trail
    for row in audit_of(acme, run_id):
        if row.type in ("workflow.step.failed", "workflow.run.failed"):
            assert row.actor_id == run_of(acme, run_id).publisher_id
            assert row.details["category"] == attempt.error_category
    return str(attempt.error_category)


def delete_user(acme: TestRealm, user_id: str) -> None:
    owner(acme.database, "UPDATE users SET state = 'deleted', suspended_at = NULL WHERE id = :user", user=user_id)


def on_the_subject(acme: TestRealm, sales: str) -> list[Json]:
    """One step of every type that is about its subject."""
    role, team, hook = acme.role(None, "org.members.read"), acme.group(sales), acme.subscription()
    return [
        step("assign_role", role_id=role, organization_id=...),
        step("remove_role", role_id=role, scope="organization"),
        step("add_to_group", group_id=team, organization_id=...),
        step("remove_from_group", group_id=team, organization_id=...),
        step("remove_membership", organization_id=...),
        step("suspend_user"),
        step("notify", recipients=...),
        step("approval", approvers=[acme.admin]),
        step("call_webhook", subscription_id=hook),
    ]


def test_subject_missing_when_the_subject_was_deleted_before_a_step(
    acme: TestRealm, worker: Worker, sales: str, ada: str
) -> None:
    runs = [acme.run(acme.published(definition(each)), ada, sales)[0] for each in on_the_subject(acme, sales)]
    delete_user(acme, ada)
    drain(worker, acme)
    assert [failed_with(acme, run) for run in runs] == ["subject_missing"] * 9


def test_self_action_when_a_step_would_act_on_its_own_publisher(acme: TestRealm, worker: Worker, sales: str) -> None:
    publisher = acme.holder(acme.roles["realm-admin"])
    acme.add_members(sales, [publisher])
    acting = on_the_subject(acme, sales)[:6]
    runs = [acme.run(acme.published(definition(each), publisher=publisher), publisher, sales)[0] for each in acting]
    drain(worker, acme)
    assert [failed_with(acme, run) for run in runs] == ["self_action"] * 6


def test_a_publisher_may_be_told_of_by_their_own_workflow(acme: TestRealm, worker: Worker) -> None:
    publisher = acme.holder(acme.roles["realm-admin"])
    run, _ = acme.run(acme.published(definition(step("notify", recipients=...)), publisher=publisher), publisher)
    drain(worker, acme)
    assert outcome(acme, run) == ("succeeded", None)


@pytest.mark.parametrize("kind", ["add_to_group", "remove_from_group"])
def test_group_missing_when_the_group_was_deleted(
    acme: TestRealm, worker: Worker, sales: str, ada: str, kind: str
) -> None:
    team = acme.group(sales)

    def delete() -> None:
        owner(acme.database, "DELETE FROM groups WHERE id = :team", team=team)

    a_step = step(kind, group_id=team, organization_id=...)
    assert refused(acme, worker, ada, sales, a_step, meanwhile=delete) == "group_missing"


@pytest.mark.parametrize("kind", ["add_to_group", "remove_from_group"])
def test_group_missing_when_the_group_is_not_one_of_the_run_s_organization(
    acme: TestRealm, worker: Worker, sales: str, ada: str, kind: str
) -> None:
    a_step = step(kind, group_id=acme.group(acme.organization(None, ada)), organization_id=...)
    assert refused(acme, worker, ada, sales, a_step) == "group_missing"


@pytest.mark.parametrize("kind", ["assign_role", "remove_role"])
def test_not_found_when_the_role_was_deleted(acme: TestRealm, worker: Worker, sales: str, ada: str, kind: str) -> None:
    role = acme.role(None, "org.members.read")

    def delete() -> None:
        owner(acme.database, "DELETE FROM roles WHERE id = :role", role=role)

    a_step = step(kind, role_id=role, scope="organization", organization_id=...)
    assert refused(acme, worker, ada, sales, a_step, meanwhile=delete) == "not_found"


@pytest.mark.parametrize("kind", ["assign_role", "add_to_group"])
def test_not_a_member_when_the_subject_does_not_belong_to_the_organization(
    acme: TestRealm, worker: Worker, sales: str, kind: str
) -> None:
    given = {
        "assign_role": {"role_id": acme.role(None, "org.members.read")},
        "add_to_group": {"group_id": acme.group(sales)},
    }
    a_step = step(kind, organization_id=..., **given[kind])
    assert refused(acme, worker, acme.user(), sales, a_step) == "not_a_member"


@pytest.mark.parametrize("kind", ["assign_role", "add_to_group"])
def test_conflict_when_the_organization_is_not_active_any_more(
    acme: TestRealm, worker: Worker, sales: str, ada: str, kind: str
) -> None:
    given = {
        "assign_role": {"role_id": acme.role(None, "org.members.read")},
        "add_to_group": {"group_id": acme.group(sales)},
    }

    def archive() -> None:
        owner(acme.database, "UPDATE organizations SET state = 'archived' WHERE id = :sales", sales=sales)

    a_step = step(kind, organization_id=..., **given[kind])
    assert refused(acme, worker, ada, sales, a_step, meanwhile=archive) == "conflict"


@pytest.mark.parametrize(
    "a_step",
    [
        step("assign_role", organization_id=...),
        step("remove_role", scope="organization"),
        step("add_to_group", organization_id=...),
        step("remove_from_group", organization_id=...),
        step("remove_membership", organization_id=...),
        step("notify", recipients="organization_owners"),
    ],
    ids=lambda a_step: str(a_step["type"]),
)
def test_organization_required_when_neither_step_nor_run_names_one(
    acme: TestRealm, worker: Worker, sales: str, ada: str, a_step: Json
) -> None:
    ids = {"role_id": acme.role(None, "org.members.read"), "group_id": acme.group(sales)}
    named = {name: id_ for name, id_ in ids.items() if name in a_step}
    assert refused(acme, worker, ada, None, {**a_step, **named}) == "organization_required"


def test_no_recipients_when_the_organization_has_no_owner(
    acme: TestRealm, worker: Worker, sales: str, ada: str
) -> None:
    told = step("notify", recipients="organization_owners")
    assert refused(acme, worker, ada, sales, told) == "no_recipients"


def test_no_recipients_when_the_definition_names_no_approver(acme: TestRealm, worker: Worker, ada: str) -> None:
    assert refused(acme, worker, ada, None, step("notify", recipients="approvers")) == "no_recipients"


def test_no_eligible_approver_when_the_subject_alone_is_named(acme: TestRealm, worker: Worker, ada: str) -> None:
    assert refused(acme, worker, ada, None, step("approval", approvers=[ada])) == "no_eligible_approver"


@pytest.mark.parametrize(
    "change", ["state = 'suspended', suspended_at = clock_timestamp()", "state = 'deleted'", "kind = 'guest'"]
)
def test_no_eligible_approver_when_those_named_may_decide_nothing_any_more(
    acme: TestRealm, worker: Worker, ada: str, change: str
) -> None:
    boss = acme.user()

    def fall() -> None:
        owner(acme.database, f"UPDATE users SET {change} WHERE id = :boss", boss=boss)

    asked = step("approval", approvers=[boss, ada])
    assert refused(acme, worker, ada, None, asked, meanwhile=fall) == "no_eligible_approver"


def an_approval(acme: TestRealm, worker: Worker, ada: str) -> tuple[str, str]:
    """A run that waits for an approval, and who may decide it."""
    boss = acme.user()
    run, _ = acme.run(acme.published(definition(step("approval", approvers=[boss], expires_in="72h"))), ada)
    drain(worker, acme)
    assert run_of(acme, run).state == "awaiting_approval"
    return run, boss


def test_approval_rejected_when_an_approver_says_no(acme: TestRealm, worker: Worker, ada: str) -> None:
    run, boss = an_approval(acme, worker, ada)
    with acme.database.begin() as connection:
        approvals.decide(connection, acme.by(boss), approval_of(acme, run).id, "reject", "no")
    drain(worker, acme)
    requested = ["workflow.run.started", "workflow.approval.requested", *REFUSED[1:]]
    assert failed_with(acme, run, requested) == "approval_rejected"
    approval = approval_of(acme, run)
    assert (approval.state, approval.decided_by, approval.comment) == ("rejected", boss, "no")


def test_approval_expired_when_nobody_decides_in_time_by_the_database_s_clock(
    acme: TestRealm, worker: Worker, ada: str
) -> None:
    run, _ = an_approval(acme, worker, ada)
    age(acme, run, hours=72)
    drain(worker, acme)
    trail = [
        "workflow.run.started",
        "workflow.approval.requested",
        *REFUSED[1:3],
        "workflow.approval.expired",
        REFUSED[3],
    ]
    assert failed_with(acme, run, trail) == "approval_expired"
    assert approval_of(acme, run).state == "expired"
    (expired,) = [row for row in audit_of(acme, run) if row.type == "workflow.approval.expired"]
    assert (expired.actor_type, expired.actor_id, expired.category) == ("system", None, "authorization")


def test_approval_missing_when_its_row_is_gone(acme: TestRealm, worker: Worker, ada: str) -> None:
    run, _ = an_approval(acme, worker, ada)
    owner(acme.database, "DELETE FROM workflow_approvals WHERE run_id = :run", run=run)
    wake(acme, run)
    drain(worker, acme)
    requested = ["workflow.run.started", "workflow.approval.requested", *REFUSED[1:]]
    assert failed_with(acme, run, requested) == "approval_missing"


def test_a_pending_approval_is_cancelled_when_its_run_fails_for_another_reason(
    acme: TestRealm, worker: Worker, ada: str
) -> None:
    run, _ = an_approval(acme, worker, ada)
    delete_user(acme, ada)
    wake(acme, run)
    drain(worker, acme)
    requested = ["workflow.run.started", "workflow.approval.requested", *REFUSED[1:]]
    assert failed_with(acme, run, requested) == "subject_missing"
    assert approval_of(acme, run).state == "cancelled"  # and that is not audited


def test_approval_missing_when_a_role_needs_an_approval_that_the_run_does_not_have(
    acme: TestRealm, worker: Worker, sales: str, ada: str
) -> None:
    role = acme.role(None, "org.members.read", requires_approval=True)
    assign = step("assign_role", role_id=role, organization_id=...)
    assert refused(acme, worker, ada, sales, assign) == "approval_missing"


def decided_by(acme: TestRealm, worker: Worker, sales: str, ada: str, approver: str) -> str:
    """The category with which a role that requires approval is refused when that approver has approved."""
    role = acme.role(None, "org.members.read", requires_approval=True)
    asked, assign = (
        step("approval", id="ask", approvers=[approver]),
        step("assign_role", role_id=role, organization_id=...),
    )
    run, _ = acme.run(acme.published(definition(asked, assign)), ada, sales)
    drain(worker, acme)
    with acme.database.begin() as connection:
        approvals.decide(connection, acme.by(approver), approval_of(acme, run).id, "approve")
    drain(worker, acme)
    approved = ["workflow.run.started", "workflow.approval.requested", "workflow.step.succeeded", *REFUSED[1:]]
    return failed_with(acme, run, approved)


def test_forbidden_when_the_approver_of_a_role_is_its_publisher(
    acme: TestRealm, worker: Worker, sales: str, ada: str
) -> None:
    assert decided_by(acme, worker, sales, ada, acme.admin) == "forbidden"


def test_forbidden_when_the_approver_of_a_role_may_not_assign_roles(
    acme: TestRealm, worker: Worker, sales: str, ada: str
) -> None:
    assert decided_by(acme, worker, sales, ada, acme.user()) == "forbidden"


def test_grant_ceiling_exceeded_when_the_approver_of_a_role_does_not_hold_what_it_gives(
    acme: TestRealm, worker: Worker, sales: str, ada: str
) -> None:
    assigner = acme.holder(acme.role(None, "org.roles.assign"), sales)
    assert decided_by(acme, worker, sales, ada, assigner) == "grant_ceiling_exceeded"


def test_conflict_when_the_last_owner_would_lose_the_role_or_the_membership(
    acme: TestRealm, worker: Worker, sales: str
) -> None:
    only = acme.holder(acme.roles["org-owner"], sales)
    steps = [
        step("remove_role", role_id=acme.roles["org-owner"], scope="organization"),
        step("remove_membership", organization_id=...),
    ]
    assert [refused(acme, worker, only, sales, each) for each in steps] == ["conflict", "conflict"]


def test_of_two_owners_removed_in_one_batch_the_last_stays(acme: TestRealm, worker: Worker, sales: str) -> None:
    owners = [acme.holder(acme.roles["org-owner"], sales) for _ in range(2)]
    workflow = acme.published(definition(step("remove_role", role_id=acme.roles["org-owner"], scope="organization")))
    runs = [acme.run(workflow, each, sales)[0] for each in owners]
    drain(worker, acme)
    assert sorted(outcome(acme, run) for run in runs) == [("failed", "conflict"), ("succeeded", None)]
    held = "SELECT 1 FROM role_assignments WHERE realm_id = :realm AND organization_id = :sales"
    assert len(rows(acme.database, held, realm=acme.id, sales=sales)) == 1


# the ceiling at run time


def a_publisher(acme: TestRealm, *permissions: str) -> tuple[str, str]:
    """A user who may publish, and a role of theirs that holds `permissions`."""
    role = acme.role(None, *permissions, boundary="realm")
    publisher = acme.holder(acme.role(None, "realm.workflows.publish", boundary="realm"))
    acme.grant(publisher, role)
    return publisher, role


LOSABLE: dict[str, tuple[str, ...]] = {
    "assign_role": ("org.roles.assign", "org.members.read"),
    "remove_role": ("org.roles.assign", "org.members.read"),
    "add_to_group": ("org.groups.write", "org.roles.assign", "org.members.read"),
    "remove_from_group": ("org.groups.write", "org.roles.assign", "org.members.read"),
    "remove_membership": ("org.members.write",),
    "suspend_user": ("realm.users.suspend",),
    "call_webhook": ("realm.webhooks.write",),
}
"""By step type: what its publisher needs beyond the right to publish. Each of them is lost once."""


def needing_authority(acme: TestRealm, sales: str) -> dict[str, Json]:
    """A step of each of those types; the group grants the role through its parent."""
    role = acme.role(None, "org.members.read")
    team = acme.group(sales, parent=acme.group(sales, roles=[role]))
    return {
        "assign_role": step("assign_role", role_id=role, organization_id=...),
        "remove_role": step("remove_role", role_id=role, scope="organization"),
        "add_to_group": step("add_to_group", group_id=team, organization_id=...),
        "remove_from_group": step("remove_from_group", group_id=team, organization_id=...),
        "remove_membership": step("remove_membership", organization_id=...),
        "suspend_user": step("suspend_user"),
        "call_webhook": step("call_webhook", subscription_id=acme.subscription()),
    }


@pytest.mark.parametrize(("kind", "lost"), [(kind, lost) for kind, needed in LOSABLE.items() for lost in needed])
def test_publisher_lacks_authority_when_a_permission_that_the_step_needs_is_lost(
    acme: TestRealm, worker: Worker, sales: str, ada: str, kind: str, lost: str
) -> None:
    needed = LOSABLE[kind]
    publisher, _ = a_publisher(acme, *[each for each in needed if each != lost])
    role = acme.role(None, lost, boundary="realm")
    acme.grant(publisher, role)
    a_step = needing_authority(acme, sales)[kind]
    assert (
        refused(acme, worker, ada, sales, a_step, publisher=publisher, meanwhile=lambda: acme.revoke(publisher, role))
        == "publisher_lacks_authority"
    )


def losses(acme: TestRealm, publisher: str, rights: str) -> dict[str, Callable[[], Any]]:
    """Ways to lose the right to publish, or all rights."""

    def change(statement: str) -> Callable[[], Any]:
        return lambda: owner(acme.database, statement, publisher=publisher, role=rights)

    return {
        "the role is revoked": lambda: acme.revoke(publisher, rights),
        "the assignment expires": change(
            "UPDATE role_assignments SET expires_at = clock_timestamp() WHERE user_id = :publisher AND role_id = :role"
        ),
        "the role loses the permission": change("UPDATE roles SET permissions = '{realm.users.read}' WHERE id = :role"),
        "the publisher is suspended": change(
            "UPDATE users SET state = 'suspended', suspended_at = clock_timestamp() WHERE id = :publisher"
        ),
        "the publisher is deleted": change("UPDATE users SET state = 'deleted' WHERE id = :publisher"),
    }


@pytest.mark.parametrize(
    ("kind", "loss"),
    [
        *[("suspend_user", loss) for loss in losses(None, "", "")],  # type: ignore[arg-type]  # only the names
        ("notify", "the role is revoked"),
        ("end", "the role is revoked"),
    ],
)
def test_publisher_lacks_authority_when_the_right_to_publish_is_lost(
    acme: TestRealm, worker: Worker, ada: str, kind: str, loss: str
) -> None:
    rights = acme.role(None, "realm.workflows.publish", boundary="realm")
    publisher = acme.holder(rights)
    acme.grant(publisher, acme.role(None, "realm.users.suspend", boundary="realm"))
    a_step = step(kind, recipients=...) if kind == "notify" else step(kind)
    meanwhile = losses(acme, publisher, rights)[loss]
    category = refused(acme, worker, ada, None, a_step, publisher=publisher, meanwhile=meanwhile)
    assert category == "publisher_lacks_authority"


def test_publisher_lacks_authority_when_authority_through_a_group_ends(
    acme: TestRealm, worker: Worker, sales: str, ada: str
) -> None:
    """The publisher holds `org.members.write` through the parent of a group that they leave."""
    publisher = acme.holder(acme.role(None, "realm.workflows.publish", boundary="realm"))
    acme.add_members(sales, [publisher])
    parent = acme.group(sales, roles=[acme.role(None, "org.members.write")])
    team = acme.group(sales, parent=parent, members=[publisher])
    a_step = step("remove_membership", organization_id=sales)

    def leave() -> None:
        owner(acme.database, "DELETE FROM group_members WHERE group_id = :team", team=team)

    kept, _ = acme.run(acme.published(definition(a_step), publisher=publisher), acme.user(), sales)
    drain(worker, acme)
    assert outcome(acme, kept) == ("succeeded", None)
    category = refused(acme, worker, ada, sales, a_step, publisher=publisher, meanwhile=leave)
    assert category == "publisher_lacks_authority"


def test_publisher_lacks_authority_when_the_role_has_grown_beyond_what_its_publisher_holds(
    acme: TestRealm, worker: Worker, sales: str, ada: str
) -> None:
    publisher, _ = a_publisher(acme, "org.roles.assign", "org.members.read")
    role = acme.role(None, "org.members.read")

    def grow() -> None:
        owner(
            acme.database,
            "UPDATE roles SET permissions = '{org.members.read,org.members.write}' WHERE id = :role",
            role=role,
        )

    assign = step("assign_role", role_id=role, organization_id=...)
    category = refused(acme, worker, ada, sales, assign, publisher=publisher, meanwhile=grow)
    assert category == "publisher_lacks_authority"


def test_publisher_lacks_authority_when_an_ancestor_of_the_group_was_given_a_stronger_role(
    acme: TestRealm, worker: Worker, sales: str, ada: str
) -> None:
    publisher, _ = a_publisher(acme, "org.groups.write", "org.roles.assign", "org.members.read")
    parent = acme.group(sales)
    team = acme.group(sales, parent=parent)
    stronger = acme.role(None, "org.members.write")
    add = step("add_to_group", group_id=team, organization_id=...)
    category = refused(
        acme, worker, ada, sales, add, publisher=publisher, meanwhile=lambda: acme.give(parent, stronger)
    )
    assert category == "publisher_lacks_authority"


def test_publisher_lacks_authority_in_the_very_organization_of_the_run(
    acme: TestRealm, worker: Worker, sales: str, ada: str
) -> None:
    """Authority in another organization than the one the step acts in does not count."""
    support = acme.organization(None, ada)
    rights = acme.role(None, "org.members.write")
    publisher = acme.holder(acme.role(None, "realm.workflows.publish", boundary="realm"))
    acme.add_members(sales, [publisher])
    acme.add_members(support, [publisher])
    acme.grant(publisher, rights, sales)
    acme.grant(publisher, rights, support)
    a_step = step("remove_membership", organization_id=support)
    category = refused(
        acme, worker, ada, sales, a_step, publisher=publisher, meanwhile=lambda: acme.revoke(publisher, rights, support)
    )
    assert category == "publisher_lacks_authority"


def test_definition_unavailable_when_the_stored_definition_is_not_what_was_published(
    acme: TestRealm, worker: Worker, ada: str
) -> None:
    workflow = acme.published(definition(step("suspend_user")))
    run, _ = acme.run(workflow, ada)
    owner(
        acme.database,
        "UPDATE workflow_revisions SET definition = replace(definition, 'suspend_user', 'remove_user')"
        " WHERE workflow_id = :workflow",
        workflow=workflow,
    )
    drain(worker, acme)
    assert outcome(acme, run) == ("failed", "definition_unavailable")
    assert attempts_of(acme, run) == []
    assert trail_of(acme, run) == ["workflow.run.started", "workflow.run.failed", "workflow.run.failed"]


def test_definition_unavailable_ends_the_attempt_that_was_begun(acme: TestRealm, worker: Worker, ada: str) -> None:
    workflow = acme.published(definition(step("wait")))
    run, _ = acme.run(workflow, ada)
    drain(worker, acme)
    owner(
        acme.database,
        "UPDATE workflow_revisions SET definition = 'null' WHERE workflow_id = :workflow",
        workflow=workflow,
    )
    age(acme, run, hours=1)
    with working(acme.database) as another:  # which has not read the definition before
        drain(another, acme)
    assert failed_with(acme, run) == "definition_unavailable"
