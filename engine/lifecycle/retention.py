"""Retention: finished runs with their attempts and approvals, dispatched events and ended messages, in short transactions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from db.session import Database
from db.statements.retention import delete_old

HISTORY = timedelta(days=180)
"""How long history is kept unless the operator says otherwise (source: "Retention")."""

BATCH = 500
"""Rows a transaction deletes at most: short enough to hold up nobody."""


@dataclass(frozen=True, slots=True)
class Cleaned:
    """How many rows went."""

    runs: int
    outbox: int
    messages: int


def clean(
    database: Database, *, older_than: timedelta = HISTORY, progress: Callable[[int], None] = lambda deleted: None
) -> Cleaned:
    """Delete what ended longer ago than that; audit rows stay. `progress` is told how many rows each transaction deleted."""
    return Cleaned(*[_all(database, kind, older_than, progress) for kind in ("runs", "outbox", "messages")])


def _all(database: Database, kind: str, older_than: timedelta, progress: Callable[[int], None]) -> int:
    total = 0
    while True:
        with database.begin() as connection:
            deleted = delete_old(connection, kind, age=older_than, limit=BATCH)
        total += deleted
        progress(deleted)
        if deleted < BATCH:
            return total
