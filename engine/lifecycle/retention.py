"""Retention: finished runs with their attempts and approvals, dispatched events, ended messages, idempotency keys and
deleted workflows, in short transactions."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from db.session import Database
from db.statements.retention import delete_old

HISTORY = timedelta(days=180)
"""How long history is kept unless the operator says otherwise (source: "Retention")."""

BATCH = 500
"""Rows a transaction deletes at most: short enough to hold up nobody."""


KINDS = ("runs", "outbox", "set_aside", "messages", "keys", "workflows")
"""In this order: a deleted workflow goes once no run of it is left."""


def clean(
    database: Database, *, older_than: timedelta = HISTORY, progress: Callable[[int], None] = lambda deleted: None
) -> dict[str, int]:
    """Delete what ended longer ago than that; audit rows stay. `progress` is told how many rows each transaction deleted.
    Returns how many rows went, by kind."""
    return {kind: _all(database, kind, older_than, progress) for kind in KINDS}


def _all(database: Database, kind: str, older_than: timedelta, progress: Callable[[int], None]) -> int:
    total = 0
    while True:
        with database.begin() as connection:
            deleted = delete_old(connection, kind, age=older_than, limit=BATCH)
        total += deleted
        progress(deleted)
        if deleted < BATCH:
            return total
