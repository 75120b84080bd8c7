"""Groups of organizations: their members, and the roles they grant."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from api.auth import Caller, permitted
from api.bodies import StrictRoute
from api.paging import Page, PageQuery, page_of
from api.routes.roles import RolePath
from api.routes.users import UserPath
from api.shapes import Answer, At, Body, Moment, Name
from api.transaction import Transaction
from db.statements import reads_groups as reads
from engine.core.errors import Refused
from engine.core.ids import GroupId, OrganizationId, RoleId, UserId
from engine.directory.commands import groups

router = APIRouter(tags=["groups"], route_class=StrictRoute)

GroupPath = Annotated[GroupId, Path(description="The group.")]
Reader = Annotated[Caller, permitted("org.groups.read", somewhere=True)]
Writer = Annotated[Caller, permitted("org.groups.write", somewhere=True, checked_by_verb=True)]


class Group(Answer):
    """A group. Its members hold its roles and those of all its ancestors."""

    id: str
    organization_id: str
    parent_id: str | None
    name: str
    created_at: At


class NewGroup(Body):
    """A group of an organization, below another one of it or not."""

    organization_id: OrganizationId
    name: Name
    parent_id: GroupId | None = None


class GroupMember(Answer):
    """A user's place in a group."""

    user_id: str
    group_id: str
    joined_at: At
    added_by: str | None
    expires_at: At | None


class NewGroupMember(Body):
    """A member of the group's organization."""

    user_id: UserId
    expires_at: Moment | None = None


class GroupRole(Answer):
    """A role that a group grants by itself."""

    group_id: str
    role_id: str


class NewGroupRole(Body):
    """A role of boundary `organization`."""

    role_id: RoleId


class GroupsQuery(PageQuery):
    organization_id: OrganizationId | None = None


@router.get("/groups")
def list_groups(caller: Reader, connection: Transaction, query: Annotated[GroupsQuery, Query()]) -> Page[Group]:
    """The groups of the realm or of one organization, the newest first. Without an organization, realm-wide authority over
    organizations is needed."""
    caller.require("org.groups.read", query.organization_id)
    return page_of(
        Group,
        query,
        (caller.realm_id, "groups"),
        lambda after, limit: reads.groups_page(
            connection, caller.realm_id, after, limit, organization_id=query.organization_id
        ),
    )


@router.post("/groups", status_code=201)
def create_group(caller: Writer, connection: Transaction, body: NewGroup) -> Group:
    """Make a group."""
    return _shown(connection, caller, groups.create(connection, caller.cause, **body.model_dump()))


@router.get("/groups/{group_id}")
def get_group(caller: Reader, connection: Transaction, group_id: GroupPath) -> Group:
    """One group."""
    return _readable(connection, caller, group_id)


@router.get("/groups/{group_id}/members")
def list_group_members(
    caller: Reader, connection: Transaction, group_id: GroupPath, query: Annotated[PageQuery, Query()]
) -> Page[GroupMember]:
    """The members of a group, the newest users first."""
    _readable(connection, caller, group_id)
    return page_of(
        GroupMember,
        query,
        (caller.realm_id, "group-members", group_id),
        lambda after, limit: reads.group_members_page(connection, caller.realm_id, group_id, after, limit),
        "user_id",
    )


@router.post(
    "/groups/{group_id}/members",
    status_code=201,
    responses={200: {"model": GroupMember, "description": "In the group already"}},
)
def add_group_member(
    caller: Writer, connection: Transaction, group_id: GroupPath, body: NewGroupMember, response: Response
) -> GroupMember:
    """Take a member of the group's organization in: 201. In it already: 200, and its expiry stays."""
    added = groups.add_member(connection, caller.cause, group_id, body.user_id, body.expires_at)
    response.status_code = 201 if added else 200
    return GroupMember.model_validate(reads.group_member(connection, caller.realm_id, group_id, body.user_id))


@router.delete("/groups/{group_id}/members/{user_id}", status_code=204)
def remove_group_member(caller: Writer, connection: Transaction, group_id: GroupPath, user_id: UserPath) -> None:
    """Let a member go."""
    groups.remove_member(connection, caller.cause, group_id, user_id)


@router.get("/groups/{group_id}/roles")
def list_group_roles(
    caller: Reader, connection: Transaction, group_id: GroupPath, query: Annotated[PageQuery, Query()]
) -> Page[GroupRole]:
    """The roles that a group grants by itself, without those of its ancestors."""
    _readable(connection, caller, group_id)
    return page_of(
        GroupRole,
        query,
        (caller.realm_id, "group-roles", group_id),
        lambda after, limit: reads.group_roles_page(connection, caller.realm_id, group_id, after, limit),
        "role_id",
    )


@router.post(
    "/groups/{group_id}/roles", status_code=201, responses={200: {"model": GroupRole, "description": "Granted already"}}
)
def add_group_role(
    caller: Writer, connection: Transaction, group_id: GroupPath, body: NewGroupRole, response: Response
) -> GroupRole:
    """Let a group grant a role: 201. It does already: 200."""
    added = groups.give_role(connection, caller.cause, group_id, body.role_id)
    response.status_code = 201 if added else 200
    return GroupRole(group_id=group_id, role_id=body.role_id)


@router.delete("/groups/{group_id}/roles/{role_id}", status_code=204)
def remove_group_role(caller: Writer, connection: Transaction, group_id: GroupPath, role_id: RolePath) -> None:
    """Let a group grant a role no longer."""
    groups.take_role(connection, caller.cause, group_id, role_id)


def _shown(connection: Transaction, caller: Caller, group_id: str) -> Group:
    row = reads.group(connection, caller.realm_id, group_id)
    if row is None:
        raise Refused("not_found", "this group does not exist")
    return Group.model_validate(row)


def _readable(connection: Transaction, caller: Caller, group_id: str) -> Group:
    group = _shown(connection, caller, group_id)
    caller.require("org.groups.read", group.organization_id)
    return group
