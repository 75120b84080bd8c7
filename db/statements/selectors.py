"""The populations of selectors, a page at a time, in the order of user ids."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from sqlalchemy import Connection, func, or_, select

from db.tables import RoleAssignment, User, table

assignments = table(RoleAssignment)
users = table(User)


def role_holders(
    connection: Connection,
    realm_id: str,
    role_id: str,
    *,
    organization_id: str | None,
    older_than: timedelta | None,
    after: str,
    limit: int,
) -> list[str]:
    """Active users behind `after` who hold the role directly and now, in that organization if one is named, and since longer
    ago than `older_than`."""
    conditions: list[Any] = [
        assignments.c.realm_id == realm_id,
        assignments.c.role_id == role_id,
        assignments.c.user_id > after,
        or_(assignments.c.expires_at.is_(None), assignments.c.expires_at > func.clock_timestamp()),
        users.c.state == "active",
    ]
    if organization_id is not None:
        conditions.append(assignments.c.organization_id == organization_id)
    if older_than is not None:
        conditions.append(assignments.c.granted_at < func.clock_timestamp() - older_than)
    statement = (
        select(assignments.c.user_id)
        .join(users, (users.c.realm_id == assignments.c.realm_id) & (users.c.id == assignments.c.user_id))
        .where(*conditions)
        .group_by(assignments.c.user_id)
        .order_by(assignments.c.user_id)
        .limit(limit)
    )
    return list(connection.execute(statement).scalars())
