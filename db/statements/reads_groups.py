"""Groups, their members and the roles they grant, as they are read. What has expired is not there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Row, func, or_, select

from db.statements.reads_pages import newest
from db.tables import Group, GroupMember, GroupRole, table

groups = table(Group)
group_members = table(GroupMember)
group_roles = table(GroupRole)

_live = select(group_members).where(
    or_(group_members.c.expires_at.is_(None), group_members.c.expires_at > func.clock_timestamp())
)


def groups_page(
    connection: Connection, realm_id: str, after: str | None, limit: int, *, organization_id: str | None = None
) -> Sequence[Row[Any]]:
    """Groups of a realm, the newest first."""
    statement = select(groups).where(groups.c.realm_id == realm_id)
    if organization_id is not None:
        statement = statement.where(groups.c.organization_id == organization_id)
    return newest(connection, statement, groups.c.id, after, limit)


def group(connection: Connection, realm_id: str, group_id: str) -> Row[Any] | None:
    """A group."""
    return connection.execute(
        select(groups).where(groups.c.realm_id == realm_id, groups.c.id == group_id)
    ).one_or_none()


def group_members_page(
    connection: Connection, realm_id: str, group_id: str, after: str | None, limit: int
) -> Sequence[Row[Any]]:
    """Members of a group, the newest users first."""
    statement = _live.where(group_members.c.realm_id == realm_id, group_members.c.group_id == group_id)
    return newest(connection, statement, group_members.c.user_id, after, limit)


def group_member(connection: Connection, realm_id: str, group_id: str, user_id: str) -> Row[Any] | None:
    """A user's place in a group."""
    return connection.execute(
        _live.where(
            group_members.c.realm_id == realm_id,
            group_members.c.group_id == group_id,
            group_members.c.user_id == user_id,
        )
    ).one_or_none()


def group_roles_page(
    connection: Connection, realm_id: str, group_id: str, after: str | None, limit: int
) -> Sequence[Row[Any]]:
    """Roles that a group grants by itself, the newest first."""
    statement = select(group_roles).where(group_roles.c.realm_id == realm_id, group_roles.c.group_id == group_id)
    return newest(connection, statement, group_roles.c.role_id, after, limit)
