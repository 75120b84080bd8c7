"""Schedules: take one that is due, and say how far it got. The row lock is what keeps two schedulers apart."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, bindparam, func, or_, select, tuple_

from db.rows import AnyRow
from db.tables import ScheduleTrigger, Workflow, table

schedules = table(ScheduleTrigger)
workflows = table(Workflow)

Key = tuple[str, str, int]
"""Realm, workflow and ordinal of a schedule."""

_key = tuple_(schedules.c.realm_id, schedules.c.workflow_id, schedules.c.ordinal)
_is_due = or_(schedules.c.next_slot_at <= func.statement_timestamp(), schedules.c.slot_at.is_not(None))
_workflow = (workflows.c.realm_id == schedules.c.realm_id) & (workflows.c.id == schedules.c.workflow_id)

_due = (
    select(schedules.c.realm_id, schedules.c.workflow_id, schedules.c.ordinal)
    .join(workflows, _workflow)
    .where(workflows.c.state == "active", _is_due)
    .order_by(schedules.c.next_slot_at)
    .limit(1)
)


def next_due(connection: Connection, passed_over: Collection[Key] = ()) -> Key | None:
    """A schedule of an active workflow whose slot has come, or is being filled; none of `passed_over`. Not locked."""
    statement = _due.where(_key.not_in(list(passed_over))) if passed_over else _due
    row = connection.execute(statement).one_or_none()
    return None if row is None else (row.realm_id, row.workflow_id, row.ordinal)


_take = (
    select(
        schedules,
        workflows.c.published_revision,
        workflows.c.publisher_id,
        workflows.c.first_published_at,
        func.clock_timestamp().label("now"),
    )
    .join(workflows, _workflow)
    .where(
        schedules.c.realm_id == bindparam("of_realm"),
        schedules.c.workflow_id == bindparam("of_workflow"),
        schedules.c.ordinal == bindparam("of_ordinal"),
        workflows.c.state == "active",
        _is_due,
    )
    .with_for_update(of=schedules, skip_locked=True)
)


def take(connection: Connection, key: Key) -> AnyRow | None:
    """That schedule, locked, if it is still due and nobody else has it. Its workflow has been locked before."""
    given = {"of_realm": key[0], "of_workflow": key[1], "of_ordinal": key[2]}
    return connection.execute(_take, given).one_or_none()


_of_workflow = (
    select(schedules)
    .where(schedules.c.realm_id == bindparam("of_realm"), schedules.c.workflow_id == bindparam("of_workflow"))
    .order_by(schedules.c.ordinal)
    .with_for_update()
)


def of_workflow(connection: Connection, realm_id: str, workflow_id: str) -> Sequence[AnyRow]:
    """The schedules of a workflow that is locked for change: at most five, locked."""
    return connection.execute(_of_workflow, {"of_realm": realm_id, "of_workflow": workflow_id}).all()


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
