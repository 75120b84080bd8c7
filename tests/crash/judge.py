"""The judge: what must hold after any number of crashes, in the database (invariants.sql) and at the receiver.

install(database)                      once, before any worker has worked on it
require_sound(database)                no view of invariants.sql has a row
require_calls_sound(database, calls)   what the endpoint got is what the steps own
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import psycopg
from sqlalchemy import text

from db.session import Database
from engine.lifecycle.states import RUN
from tests.crash.receiver import Call
from tests.database import plain

INVARIANTS = Path(__file__).with_name("invariants.sql")

SHOWN = 5
"""Rows of a violated invariant that are shown."""


def install(database: Database) -> None:
    """Lay the watch and the views over a migrated database."""
    assert database.owner_url is not None
    with psycopg.connect(plain(database.owner_url)) as connection, connection.cursor() as cursor:
        cursor.execute(INVARIANTS.read_bytes())
        moves = sorted({(source, target) for source, _, target in RUN.rows})
        cursor.executemany("INSERT INTO invariants.legal_moves VALUES (%s, %s)", moves)


def names(database: Database) -> list[str]:
    """The invariants."""
    with database.begin() as connection:
        return list(
            connection.execute(
                text("SELECT viewname FROM pg_views WHERE schemaname = 'invariants' ORDER BY viewname")
            ).scalars()
        )


def violations(database: Database) -> dict[str, list[dict[str, Any]]]:
    """The invariants that do not hold, with rows that show it."""
    found = {}
    for name in names(database):
        with database.begin() as connection:
            rows = connection.execute(text(f'SELECT * FROM invariants."{name}" LIMIT {SHOWN}')).mappings().all()
        if rows:
            found[name] = [dict(row) for row in rows]
    return found


def require_sound(database: Database) -> None:
    """Fail unless all invariants hold."""
    found = violations(database)
    assert not found, "\n".join(f"{name}: {rows}" for name, rows in found.items())


def effects(database: Database) -> int:
    """How many changes of the directory and messages came of runs."""
    with database.begin() as connection:
        found = connection.execute(
            text(
                "SELECT (SELECT count(*) FROM audit_events WHERE correlation_id LIKE 'wrn_%' AND type NOT LIKE 'workflow.%')"
                " + (SELECT count(*) FROM messages)"
            )
        )
        return int(found.scalar_one())


def longest_stall(database: Database) -> float:
    """The longest time that a run lay still in somebody's hands, in seconds."""
    with database.begin() as connection:
        found = connection.execute(
            text(
                "SELECT coalesce(extract(epoch FROM max(gap)), 0)::float FROM (SELECT written_at"
                " - lag(written_at) OVER (PARTITION BY realm_id, run_id ORDER BY position) AS gap, old_owner"
                " FROM invariants.run_changes) AS gaps WHERE old_owner IS NOT NULL"
            )
        )
        return float(found.scalar_one())


def require_five_steps_done_once(database: Database, runs: int) -> None:
    """Fail unless so many runs of Stage.five_steps have succeeded, every step of them once and at the first attempt: nobody's
    attempt failed because the database was away."""
    require_sound(database)
    with database.begin() as connection:
        states = connection.execute(text("SELECT state, count(*) FROM workflow_runs GROUP BY state")).all()
        attempts = connection.execute(text("SELECT state, count(*) FROM workflow_step_attempts GROUP BY state")).all()
    assert [tuple(row) for row in states] == [("succeeded", runs)]
    assert [tuple(row) for row in attempts] == [("succeeded", 5 * runs)]
    assert effects(database) == 4 * runs, "a grant, a place in a group, a message, and the end of that place"


def require_calls_sound(database: Database, calls: Iterable[Call]) -> None:
    """Fail unless every call belongs to a step, all calls of a key have one body but for attempt and time, no attempt was made
    twice, and every attempt that succeeded was made."""
    with database.begin() as connection:
        attempts = connection.execute(
            text(
                "SELECT id, idempotency_key, attempt, state, compensation_attempts, compensation_state,"
                " compensation_strategy FROM workflow_step_attempts WHERE step_type = 'call_webhook'"
            )
        ).all()
    by_id = {row.id: row for row in attempts}
    bodies: dict[str, set[str]] = defaultdict(set)
    made: Counter[tuple[str, int]] = Counter()
    for call in calls:
        undoing = call.body["action"] == "compensate"
        row = by_id.get(call.webhook_id[:-1] if undoing else call.webhook_id)
        assert row is not None, f"a call that no attempt owns: {call}"
        key = f"{row.idempotency_key}.compensate" if undoing else row.idempotency_key
        assert (call.key, call.body["idempotency_key"]) == (key, key), f"a call under another key: {call}"
        allowed = range(1, row.compensation_attempts + 1) if undoing else (row.attempt,)
        assert call.body["attempt"] in allowed, f"a call whose attempt is not recorded: {call}"
        made[call.webhook_id, call.body["attempt"]] += 1
        bodies[key].add(json.dumps({**call.body, "attempt": 0, "sent_at": ""}, sort_keys=True))
    assert all(len(different) == 1 for different in bodies.values()), f"two bodies under one key: {bodies}"
    assert not [one for one, times in made.items() if times > 1], f"one attempt was made twice: {made}"
    for row in attempts:
        if row.state == "succeeded":
            assert made[row.id, row.attempt] == 1, f"a success without its call: {row}"
        if row.compensation_state == "done" and row.compensation_strategy == "notify_endpoint":
            assert made[f"{row.id}c", row.compensation_attempts] == 1, f"a compensation without its call: {row}"
