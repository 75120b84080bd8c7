"""Schedules: take one that is due, and say how far it got. The row lock is what keeps two schedulers apart."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from sqlalchemy import Connection, func, or_, select, tuple_

from db.rows import AnyRow
from db.tables import ScheduleTrigger, Workflow, table

schedules = table(ScheduleTrigger)
workflows = table(Workflow)

_due = (
    select(
        schedules,
        workflows.c.published_revision,
        workflows.c.publisher_id,
        workflows.c.first_published_at,
        func.clock_timestamp().label("now"),
    )
    .join(
        workflows,
        (workflows.c.realm_id == schedules.c.realm_id) & (workflows.c.id == schedules.c.workflow_id),
    )
    .where(
        workflows.c.state == "active",
        or_(schedules.c.next_slot_at <= func.statement_timestamp(), schedules.c.slot_at.is_not(None)),
    )
    .order_by(schedules.c.next_slot_at)
    .limit(1)
    .with_for_update(of=schedules, skip_locked=True)
)


_key = tuple_(schedules.c.realm_id, schedules.c.workflow_id, schedules.c.ordinal)


def take_due(connection: Connection, passed_over: Collection[tuple[str, str, int]] = ()) -> AnyRow | None:
    """One schedule of an active workflow whose slot has come, or is being filled; locked. None of `passed_over`."""
    statement = _due.where(_key.not_in(list(passed_over))) if passed_over else _due
    return connection.execute(statement).one_or_none()


def save_progress(connection: Connection, row: AnyRow, values: Mapping[str, Any]) -> int:
    """How far a schedule got. Compare and set on its next slot: a slot never moves back."""
    return int(
        connection.execute(
            schedules.update()
            .where(
                schedules.c.realm_id == row.realm_id,
                schedules.c.workflow_id == row.workflow_id,
                schedules.c.ordinal == row.ordinal,
                schedules.c.next_slot_at == row.next_slot_at,
            )
            .values(values)
        ).rowcount
    )
