"""Roles of a realm."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query
from pydantic import Field

from api.auth import Caller, permitted
from api.bodies import StrictRoute
from api.paging import Page, PageQuery, page_of
from api.shapes import Answer, At, Body, Documented, Name
from api.transaction import Transaction
from db.statements import reads_roles as reads
from engine.core.errors import Refused
from engine.core.ids import RoleId
from engine.directory.commands import roles
from engine.directory.permissions import CATALOGUE, WILDCARDS

router = APIRouter(tags=["roles"], route_class=StrictRoute)

RolePath = Annotated[RoleId, Path(description="The role.")]
Boundary = Literal["realm", "organization"]
Permission = Annotated[str, Field(max_length=100), Documented({"enum": [*CATALOGUE, *sorted(WILDCARDS)]})]


class Role(Answer):
    """A set of permissions that may be given in a realm or in an organization (its boundary)."""

    id: str
    name: str
    boundary: Boundary
    permissions: list[str]
    requires_approval: bool
    built_in: bool
    created_at: At


class NewRole(Body):
    """`requires_approval`: it is given by workflows with an approval, never by hand."""

    name: Name
    boundary: Boundary
    permissions: Annotated[list[Permission], Field(max_length=100)]
    requires_approval: bool = False


@router.get("/roles")
def list_roles(
    caller: Annotated[Caller, permitted("realm.roles.read")],
    connection: Transaction,
    query: Annotated[PageQuery, Query()],
) -> Page[Role]:
    """The roles of the realm, the newest first."""
    return page_of(
        Role,
        query,
        (caller.realm_id, "roles"),
        lambda after, limit: reads.roles_page(connection, caller.realm_id, after, limit),
    )


@router.post("/roles", status_code=201)
def create_role(
    caller: Annotated[Caller, permitted("realm.roles.write", checked_by_verb=True)],
    connection: Transaction,
    body: NewRole,
) -> Role:
    """Make a role. Giving it to somebody takes all that it holds."""
    return _shown(connection, caller, roles.create(connection, caller.cause, **body.model_dump()))


@router.get("/roles/{role_id}")
def get_role(
    caller: Annotated[Caller, permitted("realm.roles.read")], connection: Transaction, role_id: RolePath
) -> Role:
    """One role."""
    return _shown(connection, caller, role_id)


def _shown(connection: Transaction, caller: Caller, role_id: str) -> Role:
    row = reads.role(connection, caller.realm_id, role_id)
    if row is None:
        raise Refused("not_found", "this role does not exist")
    return Role.model_validate(row)
