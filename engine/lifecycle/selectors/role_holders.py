"""Users who hold a role, directly and now; with `granted_before`, since longer ago than that."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from sqlalchemy import Connection, func, select

from db.tables import RoleAssignment, User, table
from engine.lifecycle.trigger_members import RoleHolders

_assignments = table(RoleAssignment)
_users = table(User)


def page(connection: Connection, realm_id: str, selector: RoleHolders, after: str, limit: int) -> list[str]:
    """The next `limit` user ids behind `after`. Suspended users are found by no selector but their own."""
    conditions: list[Any] = [
        _assignments.c.realm_id == realm_id,
        _assignments.c.role_id == selector.role_id,
        _assignments.c.user_id > after,
        func.coalesce(_assignments.c.expires_at > func.clock_timestamp(), True),
        _users.c.state == "active",
    ]
    if selector.organization_id is not None:
        conditions.append(_assignments.c.organization_id == selector.organization_id)
    if selector.granted_before is not None:
        age: timedelta = selector.granted_before.timedelta
        conditions.append(_assignments.c.granted_at < func.clock_timestamp() - age)
    statement = (
        select(_assignments.c.user_id)
        .join(_users, (_users.c.realm_id == _assignments.c.realm_id) & (_users.c.id == _assignments.c.user_id))
        .where(*conditions)
        .group_by(_assignments.c.user_id)
        .order_by(_assignments.c.user_id)
        .limit(limit)
    )
    return list(connection.execute(statement).scalars())
