"""History that may go, a batch at a time."""

from __future__ import annotations

from datetime import timedelta

from sqlalchemy import ColumnElement, Connection, Delete, Table, bindparam, delete, exists, func, select
from sqlalchemy.types import Integer, Interval

from db.tables import IdempotencyKey, Message, OutboxEvent, Workflow, WorkflowRun, table


def _cleaner(of: Table, ended: str, *rules: ColumnElement[bool]) -> Delete:
    key = list(of.primary_key)
    old = (
        select(*key)
        .where(of.c[ended] < func.statement_timestamp() - bindparam("age", type_=Interval), *rules)
        .order_by(of.c[ended])
        .limit(bindparam("limit", type_=Integer))
        .with_for_update(skip_locked=True)
        .cte("old")
    )
    return delete(of).where(*(column == old.c[column.name] for column in key))


_runs, _workflows = table(WorkflowRun), table(Workflow)
_of_no_run = ~exists().where(_runs.c.realm_id == _workflows.c.realm_id, _runs.c.workflow_id == _workflows.c.id)

_CLEANERS = {
    "runs": _cleaner(table(WorkflowRun), "finished_at"),
    "outbox": _cleaner(table(OutboxEvent), "dispatched_at"),
    "set_aside": _cleaner(table(OutboxEvent), "set_aside_at"),
    "messages": _cleaner(table(Message), "ended_at"),
    "keys": _cleaner(table(IdempotencyKey), "created_at"),
    "workflows": _cleaner(_workflows, "deleted_at", _of_no_run),
}


def delete_old(connection: Connection, kind: str, *, age: timedelta, limit: int) -> int:
    """Delete up to `limit` rows of a kind that ended longer ago than `age`, the oldest first: `runs` with their attempts and
    approvals; dispatched events (`outbox`) and those `set_aside`; `messages`; idempotency `keys`; deleted `workflows` of which
    no run is left. Returns how many."""
    return int(connection.execute(_CLEANERS[kind], {"age": age, "limit": limit}).rowcount)
