"""The outbox: take what is undispatched, mark it, set aside what keeps failing, and let that wait again."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, bindparam, func, select, text
from sqlalchemy.types import Integer

from db.rows import AnyRow
from db.statements.bulk import keys as keys_of
from db.statements.bulk import unnested, update_rows
from db.tables import OutboxEvent, table
from db.tables.columns import ID

events = table(OutboxEvent)

_undispatched = (
    select(
        events.c.realm_id,
        events.c.id,
        events.c.type,
        events.c.event_version,
        events.c.user_id,
        events.c.organization_id,
        events.c.correlation_id,
        events.c.caused_by_workflow,
        events.c.depth,
        events.c.attempts,
    )
    .where(
        events.c.dispatched_at.is_(None),
        events.c.set_aside_at.is_(None),
        events.c.due_at <= func.statement_timestamp(),
    )
    .order_by(events.c.due_at, events.c.position)
    .limit(bindparam("limit", type_=Integer))
    .with_for_update(skip_locked=True)
)


def take_undispatched(connection: Connection, limit: int) -> Sequence[AnyRow]:
    """Events that wait for dispatch, locked, oldest first. Found by their state: none is skipped for committing late."""
    return connection.execute(_undispatched, {"limit": limit}).all()


_keys = unnested({"realm_id": ID, "id": ID}, "done")
_mark = (
    events.update()
    .values(dispatched_at=func.clock_timestamp())
    .where(events.c.realm_id == _keys.c.realm_id, events.c.id == _keys.c.id)
)


def mark_dispatched(connection: Connection, keys: Sequence[tuple[str, str]]) -> int:
    """These events have been dispatched, by this transaction."""
    return int(connection.execute(_mark, keys_of(keys)).rowcount)


RECORD_FAILURE = update_rows(
    events, ["realm_id", "id"], ["attempts", "due_at", "set_aside_at", "last_error"], name="record dispatch failure"
)


def lock_event(connection: Connection, realm_id: str, event_id: str) -> AnyRow | None:
    """An event, locked."""
    statement = select(events).where(events.c.realm_id == realm_id, events.c.id == event_id)
    return connection.execute(statement.with_for_update()).one_or_none()


def wait_again(connection: Connection, realm_id: str, event_id: str) -> None:
    """A locked event waits for dispatch again, due now, as if it had never failed. What its last failure was stays."""
    connection.execute(
        events.update()
        .where(events.c.realm_id == realm_id, events.c.id == event_id)
        .values(set_aside_at=None, attempts=0, due_at=func.clock_timestamp())
    )


_notify = select(func.pg_notify(bindparam("channel"), text("''")))

CHANNEL = "tenure_due"
"""Notified by every transaction that leaves work behind: an event to dispatch, a run that is due."""


def notify(connection: Connection) -> None:
    """Wake the workers when this transaction commits. The poll finds the work if the word is lost."""
    connection.execute(_notify, {"channel": CHANNEL})
