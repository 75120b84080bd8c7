"""Role assignments: who holds which role, where, and until when."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query, Response

from api.auth import Caller, permitted
from api.bodies import StrictRoute
from api.paging import Page, PageQuery, page_of
from api.shapes import Answer, At, Body, Moment
from api.transaction import Transaction
from db.statements import reads_roles as reads
from engine.core.errors import Refused
from engine.core.ids import OrganizationId, RoleAssignmentId, RoleId, UserId
from engine.directory.commands import assignments

router = APIRouter(tags=["roles"], route_class=StrictRoute)

AssignmentPath = Annotated[RoleAssignmentId, Path(description="The role assignment.")]
Reader = Annotated[Caller, permitted("realm.roles.read")]
Assigner = Annotated[Caller, permitted("realm.roles.assign", "org.roles.assign", somewhere=True, checked_by_verb=True)]


class RoleAssignment(Answer):
    """A role held by a user."""

    id: str
    role_id: str
    user_id: str
    scope: Literal["realm", "organization"]
    organization_id: str | None
    granted_at: At
    granted_by: str | None
    expires_at: At | None


class NewRoleAssignment(Body):
    """Realm-wide without an organization."""

    user_id: UserId
    role_id: RoleId
    organization_id: OrganizationId | None = None
    expires_at: Moment | None = None


class RoleAssignmentChanges(Body):
    """Null: it does not expire."""

    expires_at: Moment | None


class RoleAssignmentsQuery(PageQuery):
    user_id: UserId | None = None
    role_id: RoleId | None = None
    organization_id: OrganizationId | None = None


@router.get("/role-assignments")
def list_role_assignments(
    caller: Reader, connection: Transaction, query: Annotated[RoleAssignmentsQuery, Query()]
) -> Page[RoleAssignment]:
    """The role assignments of the realm that count now, the newest first."""
    filters = query.model_dump(exclude={"limit", "cursor"})
    return page_of(
        RoleAssignment,
        query,
        (caller.realm_id, "role-assignments"),
        lambda after, limit: reads.assignments_page(connection, caller.realm_id, after, limit, **filters),
    )


@router.post(
    "/role-assignments", status_code=201, responses={200: {"model": RoleAssignment, "description": "Held already"}}
)
def assign_role(
    caller: Assigner, connection: Transaction, body: NewRoleAssignment, response: Response
) -> RoleAssignment:
    """Give a user a role the caller could give: 201. Held already: 200, and its expiry stays."""
    assignment_id, new = assignments.assign(connection, caller.cause, **body.model_dump())
    response.status_code = 201 if new else 200
    return _shown(connection, caller, assignment_id)


@router.get("/role-assignments/{assignment_id}")
def get_role_assignment(caller: Reader, connection: Transaction, assignment_id: AssignmentPath) -> RoleAssignment:
    """One role assignment."""
    return _shown(connection, caller, assignment_id)


@router.patch("/role-assignments/{assignment_id}")
def change_role_assignment(
    caller: Assigner, connection: Transaction, assignment_id: AssignmentPath, body: RoleAssignmentChanges
) -> RoleAssignment:
    """Change when it expires."""
    assignments.extend(connection, caller.cause, assignment_id, body.expires_at)
    return _shown(connection, caller, assignment_id)


@router.delete("/role-assignments/{assignment_id}", status_code=204)
def revoke_role(caller: Assigner, connection: Transaction, assignment_id: AssignmentPath) -> None:
    """Take a role from a user. The last owner of an organization stays: 409."""
    assignments.revoke(connection, caller.cause, assignment_id)


def _shown(connection: Transaction, caller: Caller, assignment_id: str) -> RoleAssignment:
    row = reads.assignment(connection, caller.realm_id, assignment_id)
    if row is None:
        raise Refused("not_found", "this role assignment does not exist")
    return RoleAssignment.model_validate(row)
