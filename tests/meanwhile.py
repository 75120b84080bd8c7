"""What happens to a database while nobody looks: time passes, an event cannot be dispatched."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from db.session import Database
from engine.lifecycle.schedules import fire_due
from tests.driver import owner, rows

Happening = Callable[[Database], None]

# Runs come last: a worker that takes one which is due at last must find what it waited for in the past as well.
_MOMENTS = """
    SELECT c.table_name, array_agg(c.column_name::text) AS columns FROM information_schema.columns c
    JOIN information_schema.columns r ON r.table_name = c.table_name AND r.column_name = 'realm_id'
    WHERE c.table_schema = 'public' AND c.data_type = 'timestamp with time zone' AND c.table_name <> 'audit_events'
    GROUP BY c.table_name ORDER BY c.table_name = 'workflow_runs'
"""
_WAITS = """
    UPDATE workflow_step_attempts
    SET input = jsonb_set(input, '{until}', to_jsonb((input ->> 'until')::timestamptz - :by)) WHERE input ? 'until'
"""
_SET_ASIDE = """
    UPDATE outbox_events
    SET dispatched_at = NULL, set_aside_at = clock_timestamp(), attempts = 10, last_error = 'DataError'
    WHERE (realm_id, id) = (SELECT realm_id, id FROM outbox_events WHERE type = :type ORDER BY position DESC LIMIT 1)
"""


def time_passes(**by: float) -> Happening:
    """All that is recorded happened earlier, but for the audit trail, and the schedules fire. `by` as of timedelta."""

    def passes(database: Database) -> None:
        owner(database, _WAITS, by=timedelta(**by))
        for table in rows(database, _MOMENTS):
            moved = ", ".join(f"{column} = {column} - :by" for column in table.columns)
            owner(database, f"UPDATE {table.table_name} SET {moved}", by=timedelta(**by))
        fire_due(database)

    return passes


def set_aside(type_: str) -> Happening:
    """The latest event of that type could not be dispatched."""

    def is_set_aside(database: Database) -> None:
        assert owner(database, _SET_ASIDE, type=type_) == 1

    return is_set_aside
