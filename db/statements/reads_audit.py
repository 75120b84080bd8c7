"""The audit trail, as it is read."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, select

from db.statements.reads_pages import moment, newest
from db.tables import AuditEvent, table

events = table(AuditEvent)


def audit_page(
    connection: Connection,
    realm_id: str,
    after: int | None,
    limit: int,
    *,
    target_id: str | None = None,
    correlation_id: str | None = None,
    since: datetime | None = None,
) -> Sequence[Row[Any]]:
    """Audit events of a realm, the newest first."""
    statement = select(events).where(events.c.realm_id == realm_id)
    if target_id is not None:
        statement = statement.where(events.c.target_id == target_id)
    if correlation_id is not None:
        statement = statement.where(events.c.correlation_id == correlation_id)
    if since is not None:
        statement = statement.where(events.c.created_at >= moment(since))
    return newest(connection, statement, events.c.position, after, limit)
