"""The outbox, as it is read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from sqlalchemy import Connection, Row, Select, and_, case, select

from db.statements.reads_pages import newest, word
from db.tables import OutboxEvent, table

events = table(OutboxEvent)

State = Literal["waiting", "dispatched", "set_aside"]

_IN_STATE = {
    "dispatched": events.c.dispatched_at.is_not(None),
    "set_aside": events.c.set_aside_at.is_not(None),
    "waiting": and_(events.c.dispatched_at.is_(None), events.c.set_aside_at.is_(None)),
}
"""Each has an index that holds the events in that state alone, but for what nearly all are in."""

_shown: Select[Any] = select(events, case(*[(rule, state) for state, rule in _IN_STATE.items()]).label("state"))


def events_page(
    connection: Connection,
    realm_id: str,
    after: str | None,
    limit: int,
    *,
    type: str | None = None,
    user_id: str | None = None,
    state: State | None = None,
) -> Sequence[Row[Any]]:
    """Events of a realm, the newest first."""
    statement = _shown.where(events.c.realm_id == realm_id)
    if type is not None:
        statement = statement.where(events.c.type == word(type))
    if user_id is not None:
        statement = statement.where(events.c.user_id == user_id)
    if state is not None:
        statement = statement.where(_IN_STATE[state])
    return newest(connection, statement, events.c.id, after, limit)


def event(connection: Connection, realm_id: str, event_id: str) -> Row[Any] | None:
    """An event."""
    return connection.execute(_shown.where(events.c.realm_id == realm_id, events.c.id == event_id)).one_or_none()
