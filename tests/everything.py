"""A realm with everything that a path or body of the API can name: one that is named, and one more, so that every list has a
second page."""

from __future__ import annotations

from dataclasses import dataclass

from engine.core import ids
from engine.core.ids import Prefix
from tests.definitions import definition, event, step
from tests.driver import approval_of, drain, working
from tests.factories import TestRealm


@dataclass(frozen=True)
class Everything:
    """Ids, named as the API's paths and bodies name them."""

    workflow_id: str
    number: str
    run_id: str
    approval_id: str
    user_id: str
    organization_id: str
    group_id: str
    role_id: str
    assignment_id: str
    subscription_id: str
    principal_id: str
    event_id: str
    approver_id: str


def everything(realm: TestRealm) -> Everything:
    """Fill a realm: a run waits for an approval, a member of an organization and its group holds a role in it."""
    user_id, approver_id, other_id = realm.user(), realm.user(), realm.user()
    organization_id = realm.organization(None, user_id, other_id)
    realm.organization()
    role_id = realm.role()
    assignment_id = realm.grant(user_id, role_id, organization_id)
    group_id = realm.group(organization_id, roles=[realm.role(), realm.role()], members=[user_id, other_id])
    realm.group(organization_id)
    waiting = definition(
        step("approval", approvers=[approver_id]), step("end", id="b"), triggers=[{"type": "manual"}, event()]
    )
    workflow_id = realm.published(waiting)
    realm.revision(workflow_id, waiting)
    realm.workflow()
    run_id, _ = realm.run(workflow_id, user_id, organization_id)
    realm.run(workflow_id, other_id, organization_id)
    realm.subscription()
    realm.principal()
    realm.event("user.suspended", other_id)
    with working(realm.database) as worker:
        drain(worker, realm)
    return Everything(
        workflow_id=workflow_id,
        number="1",
        run_id=run_id,
        approval_id=approval_of(realm, run_id).id,
        user_id=user_id,
        organization_id=organization_id,
        group_id=group_id,
        role_id=role_id,
        assignment_id=assignment_id,
        subscription_id=realm.subscription(),
        principal_id=realm.principal(),
        event_id=realm.event("user.suspended", user_id),
        approver_id=approver_id,
    )


def nothing() -> Everything:
    """Ids that nobody has."""
    return Everything(
        workflow_id=ids.new(Prefix.WORKFLOW),
        number="1",
        run_id=ids.new(Prefix.RUN),
        approval_id=ids.new(Prefix.APPROVAL),
        user_id=ids.new(Prefix.USER),
        organization_id=ids.new(Prefix.ORGANIZATION),
        group_id=ids.new(Prefix.GROUP),
        role_id=ids.new(Prefix.ROLE),
        assignment_id=ids.new(Prefix.ROLE_ASSIGNMENT),
        subscription_id=ids.new(Prefix.SUBSCRIPTION),
        principal_id=ids.new(Prefix.SERVICE_PRINCIPAL),
        event_id=ids.new(Prefix.OUTBOX_EVENT),
        approver_id=ids.new(Prefix.USER),
    )
