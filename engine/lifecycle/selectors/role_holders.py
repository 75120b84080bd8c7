"""Users who hold a role, directly and now; with `granted_before`, since longer ago than that."""

from __future__ import annotations

from sqlalchemy import Connection

from db.statements import selectors as statements
from engine.lifecycle.trigger_members import RoleHolders


def page(connection: Connection, realm_id: str, selector: RoleHolders, after: str, limit: int) -> list[str]:
    """The next `limit` user ids behind `after`. Suspended users are found by no selector but their own."""
    return statements.role_holders(
        connection,
        realm_id,
        selector.role_id,
        organization_id=selector.organization_id,
        older_than=None if selector.granted_before is None else selector.granted_before.timedelta,
        after=after,
        limit=limit,
    )
