"""Roles and role assignments, as they are read. What has expired is not there (lifecycle.md, "Steps")."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Row, func, or_, select

from db.statements.reads_pages import newest
from db.tables import Role, RoleAssignment, table

roles = table(Role)
assignments = table(RoleAssignment)

_live = select(assignments).where(
    or_(assignments.c.expires_at.is_(None), assignments.c.expires_at > func.clock_timestamp())
)


def roles_page(connection: Connection, realm_id: str, after: str | None, limit: int) -> Sequence[Row[Any]]:
    """Roles of a realm, the newest first."""
    return newest(connection, select(roles).where(roles.c.realm_id == realm_id), roles.c.id, after, limit)


def role(connection: Connection, realm_id: str, role_id: str) -> Row[Any] | None:
    """A role."""
    return connection.execute(select(roles).where(roles.c.realm_id == realm_id, roles.c.id == role_id)).one_or_none()


def assignments_page(
    connection: Connection,
    realm_id: str,
    after: str | None,
    limit: int,
    *,
    user_id: str | None = None,
    role_id: str | None = None,
    organization_id: str | None = None,
) -> Sequence[Row[Any]]:
    """Role assignments of a realm, the newest first."""
    statement = _live.where(assignments.c.realm_id == realm_id)
    if user_id is not None:
        statement = statement.where(assignments.c.user_id == user_id)
    if role_id is not None:
        statement = statement.where(assignments.c.role_id == role_id)
    if organization_id is not None:
        statement = statement.where(assignments.c.organization_id == organization_id)
    return newest(connection, statement, assignments.c.id, after, limit)


def assignment(connection: Connection, realm_id: str, assignment_id: str) -> Row[Any] | None:
    """A role assignment."""
    return connection.execute(
        _live.where(assignments.c.realm_id == realm_id, assignments.c.id == assignment_id)
    ).one_or_none()
