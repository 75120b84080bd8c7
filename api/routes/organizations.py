"""Organizations and their members."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query, Response

from api.auth import Caller, permitted
from api.bodies import StrictRoute
from api.paging import Page, PageQuery, page_of
from api.routes.users import UserPath
from api.shapes import Answer, At, Body, Name
from api.transaction import Transaction
from db.statements import reads_organizations as reads
from engine.core.errors import Refused
from engine.core.ids import OrganizationId, UserId
from engine.directory.commands import organizations

router = APIRouter(tags=["organizations"], route_class=StrictRoute)

OrganizationPath = Annotated[OrganizationId, Path(description="The organization.")]


class Organization(Answer):
    """An organization of the realm."""

    id: str
    name: str
    state: Literal["active", "archived"]
    created_at: At


class NewOrganization(Body):
    """An active organization."""

    name: Name


class Member(Answer):
    """A user's place in an organization."""

    user_id: str
    organization_id: str
    joined_at: At


class NewMember(Body):
    """A user of the realm."""

    user_id: UserId


class OrganizationsQuery(PageQuery):
    state: Literal["active", "archived"] | None = None


@router.get("/organizations")
def list_organizations(
    caller: Annotated[Caller, permitted("realm.organizations.read")],
    connection: Transaction,
    query: Annotated[OrganizationsQuery, Query()],
) -> Page[Organization]:
    """The organizations of the realm, the newest first."""
    return page_of(
        Organization,
        query,
        (caller.realm_id, "organizations"),
        lambda after, limit: reads.organizations_page(connection, caller.realm_id, after, limit, state=query.state),
    )


@router.post("/organizations", status_code=201)
def create_organization(
    caller: Annotated[Caller, permitted("realm.organizations.write", checked_by_verb=True)],
    connection: Transaction,
    body: NewOrganization,
) -> Organization:
    """Make an active organization."""
    return _shown(connection, caller, organizations.create(connection, caller.cause, name=body.name))


@router.get("/organizations/{organization_id}")
def get_organization(
    caller: Annotated[Caller, permitted("realm.organizations.read")],
    connection: Transaction,
    organization_id: OrganizationPath,
) -> Organization:
    """One organization."""
    return _shown(connection, caller, organization_id)


@router.get("/organizations/{organization_id}/members")
def list_members(
    caller: Annotated[Caller, permitted("org.members.read", organization="organization_id")],
    connection: Transaction,
    organization_id: OrganizationPath,
    query: Annotated[PageQuery, Query()],
) -> Page[Member]:
    """The members of an organization, the newest users first."""
    _shown(connection, caller, organization_id)
    return page_of(
        Member,
        query,
        (caller.realm_id, "members", organization_id),
        lambda after, limit: reads.members_page(connection, caller.realm_id, organization_id, after, limit),
        "user_id",
    )


@router.post(
    "/organizations/{organization_id}/members",
    status_code=201,
    responses={200: {"model": Member, "description": "A member already"}},
)
def add_member(
    caller: Annotated[Caller, permitted("org.members.write", organization="organization_id", checked_by_verb=True)],
    connection: Transaction,
    organization_id: OrganizationPath,
    body: NewMember,
    response: Response,
) -> Member:
    """Make a user a member: 201. A member already: 200."""
    added = organizations.add_member(connection, caller.cause, organization_id, body.user_id)
    response.status_code = 201 if added else 200
    row = reads.membership(connection, caller.realm_id, organization_id, body.user_id)
    return Member.model_validate(row)


@router.delete("/organizations/{organization_id}/members/{user_id}", status_code=204)
def remove_member(
    caller: Annotated[Caller, permitted("org.members.write", organization="organization_id", checked_by_verb=True)],
    connection: Transaction,
    organization_id: OrganizationPath,
    user_id: UserPath,
) -> None:
    """End a membership, with its groups and organization roles. The last owner cannot be removed: 409."""
    organizations.remove_member(connection, caller.cause, organization_id, user_id)


def _shown(connection: Transaction, caller: Caller, organization_id: str) -> Organization:
    row = reads.organization(connection, caller.realm_id, organization_id)
    if row is None:
        raise Refused("not_found", "this organization does not exist")
    return Organization.model_validate(row)
