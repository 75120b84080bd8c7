"""What has expired and is still there."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, func, select

from db.rows import AnyRow
from db.tables import GroupMember, RoleAssignment, table

assignments = table(RoleAssignment)
members = table(GroupMember)

_expired_assignments = (
    select(assignments.c.realm_id, assignments.c.user_id)
    .where(assignments.c.expires_at <= func.statement_timestamp())
    .order_by(assignments.c.expires_at)
    .limit(500)
)
_expired_members = (
    select(members.c.realm_id, members.c.user_id)
    .where(members.c.expires_at <= func.statement_timestamp())
    .order_by(members.c.expires_at)
    .limit(500)
)


def holders_of_expired(connection: Connection) -> Sequence[AnyRow]:
    """Users (realm and id) who hold an assignment or a group membership that has expired, the longest expired first."""
    return [*connection.execute(_expired_assignments).all(), *connection.execute(_expired_members).all()]
