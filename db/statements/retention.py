"""History that may go, a batch at a time."""

from __future__ import annotations

from datetime import timedelta

from sqlalchemy import Connection, Delete, Table, bindparam, delete, func, select
from sqlalchemy.types import Integer, Interval

from db.tables import Message, OutboxEvent, WorkflowRun, table


def _cleaner(of: Table, ended: str) -> Delete:
    old = (
        select(of.c.realm_id, of.c.id)
        .where(of.c[ended] < func.statement_timestamp() - bindparam("age", type_=Interval))
        .order_by(of.c[ended])
        .limit(bindparam("limit", type_=Integer))
        .with_for_update(skip_locked=True)
        .cte("old")
    )
    return delete(of).where(of.c.realm_id == old.c.realm_id, of.c.id == old.c.id)


_CLEANERS = {
    "runs": _cleaner(table(WorkflowRun), "finished_at"),
    "outbox": _cleaner(table(OutboxEvent), "dispatched_at"),
    "messages": _cleaner(table(Message), "ended_at"),
}


def delete_old(connection: Connection, kind: str, *, age: timedelta, limit: int) -> int:
    """Delete up to `limit` rows of a kind (`runs` with their attempts and approvals, `outbox`, `messages`) that ended longer
    ago than `age`, the oldest first. Returns how many."""
    return int(connection.execute(_CLEANERS[kind], {"age": age, "limit": limit}).rowcount)
