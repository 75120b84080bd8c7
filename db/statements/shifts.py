"""The rows of shifts. All times are the database's; every statement touches a handful of rows by an index."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import timedelta

from sqlalchemy import Connection, bindparam, case, delete, exists, func, insert, or_, select, tuple_, update

from db.rows import AnyRow
from db.tables.shifts import Shift

shifts = Shift.__table__  # type: ignore[attr-defined]
_now = func.clock_timestamp()
_seen_at = func.coalesce(shifts.c.last_pass_at, shifts.c.started_at)

_insert = insert(shifts)


def insert_shift(connection: Connection, shift_id: str, deployment: str, owner: str, flow_run_id: str | None) -> None:
    """Open a shift that has not passed yet."""
    connection.execute(_insert, {"id": shift_id, "deployment": deployment, "owner": owner, "flow_run_id": flow_run_id})


_mark_pass = (
    update(shifts)
    .where(shifts.c.id == bindparam("shift_id"), shifts.c.ended_at.is_(None))
    .values(last_pass_at=_now, passes=bindparam("count"))
)


def mark_pass(connection: Connection, shift_id: str, count: int) -> bool:
    """Show that the shift lives, and how many passes it has made. False when it was ended, or its row is gone."""
    return connection.execute(_mark_pass, {"shift_id": shift_id, "count": count}).rowcount == 1


_mine = shifts.alias("mine")
_younger = select(
    exists()
    .where(
        _mine.c.id == bindparam("shift_id"),
        shifts.c.deployment == _mine.c.deployment,
        tuple_(shifts.c.started_at, shifts.c.id) > tuple_(_mine.c.started_at, _mine.c.id),
        shifts.c.ended_at.is_(None),
        shifts.c.last_pass_at > _now - bindparam("within"),
    )
    .select_from(shifts, _mine)
)


def has_younger_at_work(connection: Connection, shift_id: str, within: timedelta) -> bool:
    """Whether an open, younger shift of the same deployment has made a pass `within` that time."""
    return bool(connection.execute(_younger, {"shift_id": shift_id, "within": within}).scalar_one())


_end = (
    update(shifts)
    .where(shifts.c.id == bindparam("shift_id"), shifts.c.ended_at.is_(None))
    .values(ended_at=_now, ended_how=bindparam("how"), passes=func.greatest(shifts.c.passes, bindparam("count")))
)


def end_shift(connection: Connection, shift_id: str, how: str, count: int) -> bool:
    """End an open shift. False when it was ended before: the first end stands."""
    return connection.execute(_end, {"shift_id": shift_id, "how": how, "count": count}).rowcount == 1


_columns = (shifts.c.id, shifts.c.deployment, shifts.c.owner, shifts.c.flow_run_id)
_silent = (
    select(*_columns)
    .where(shifts.c.ended_at.is_(None), _seen_at < _now - bindparam("silent_for"))
    .order_by(shifts.c.started_at)
)


def silent_shifts(connection: Connection, silent_for: timedelta) -> Sequence[AnyRow]:
    """Open shifts without a sign of life for that long."""
    return connection.execute(_silent, {"silent_for": silent_for}).all()


_open_of_flow_run = select(*_columns).where(
    shifts.c.flow_run_id == bindparam("flow_run_id"), shifts.c.ended_at.is_(None)
)


def open_shifts_of(connection: Connection, flow_run_id: str) -> Sequence[AnyRow]:
    """The open shifts of a flow run: one, or none; more if Prefect ran it twice."""
    return connection.execute(_open_of_flow_run, {"flow_run_id": flow_run_id}).all()


_standing = (
    select(
        shifts.c.flow_run_id,
        shifts.c.ended_how,
        case(
            (shifts.c.ended_at.is_not(None), shifts.c.ended_at < _now - bindparam("silent_for")),
            else_=_seen_at < _now - bindparam("silent_for"),
        ).label("silent"),
    )
    .where(shifts.c.flow_run_id.in_(bindparam("flow_run_ids", expanding=True)))
    .order_by(shifts.c.started_at)
)


def shifts_of(connection: Connection, flow_run_ids: Collection[str], silent_for: timedelta) -> Sequence[AnyRow]:
    """(flow_run_id, ended_how, silent) of every shift of these flow runs, oldest first."""
    return connection.execute(_standing, {"flow_run_ids": list(flow_run_ids), "silent_for": silent_for}).all()


_at_work = select(
    exists().where(
        shifts.c.deployment == bindparam("deployment"),
        shifts.c.ended_at.is_(None),
        shifts.c.last_pass_at > _now - bindparam("within"),
    )
)


def is_at_work(connection: Connection, deployment: str, within: timedelta) -> bool:
    """Whether an open shift of the deployment has made a pass `within` that time."""
    return bool(connection.execute(_at_work, {"deployment": deployment, "within": within}).scalar_one())


_delete = delete(shifts).where(
    or_(
        shifts.c.ended_at < _now - bindparam("older_than"),
        (shifts.c.ended_at.is_(None)) & (_seen_at < _now - bindparam("older_than")),
    )
)


def delete_old_shifts(connection: Connection, older_than: timedelta) -> int:
    """Delete shifts that ended, or fell silent without an end, longer ago than that. Some 400 rows a day."""
    return connection.execute(_delete, {"older_than": older_than}).rowcount
