"""Shifts: who hosts the engine's loops, told by rows, so that one shift can relieve another and a dead one is noticed.

    begin -> passed, passed, ... -> relieved? -> end
                                                 lost    a dead shift's row ended by somebody else, its leases handed back

Nothing here makes the engine right (leases and fences do): a shift that starts late, early or twice does no harm. All
times are the database's clock.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from db.rows import AnyRow
from db.session import Database
from db.statements import shifts as statements
from engine.core import ids

End = Literal["relieved", "capped", "finished", "stopped", "cancelled", "crashed", "lost"]
"""How a shift ends: relieved by a younger one; at the cap of hours; its work finished (cleaning); stopped or cancelled from
outside; its process crashed; lost without a word."""

Standing = Literal["alive", "silent"] | End
"""Where a flow run stands by our own rows. An end counts once it is SILENT_AFTER old: until then it may still be reported."""

RELIEF_WITHIN = timedelta(seconds=5)
"""A younger shift counts when its last pass is no older than this. Loops that pass more rarely say how rarely."""

SILENT_AFTER = timedelta(minutes=2)
"""An open shift without a pass for this long is taken for dead."""


@dataclass(frozen=True, slots=True)
class Shift:
    """An open shift. `owner` is the name its leases carry, `flow_run_id` the Prefect flow run that hosts it, if one does."""

    id: str
    deployment: str
    owner: str
    flow_run_id: str | None


def begin(database: Database, deployment: str, owner: str, flow_run_id: str | None = None) -> Shift:
    """Open a shift. It relieves nobody before its first pass."""
    shift = Shift(ids.new(ids.Prefix.SHIFT), deployment, owner, flow_run_id)
    with database.begin() as connection:
        statements.insert_shift(connection, shift.id, deployment, owner, flow_run_id)
    return shift


def passed(database: Database, shift: Shift, passes: int) -> bool:
    """Record that the shift lives and has made `passes` passes. False when somebody has ended it: it must stop.

    One small write: call it once a second at most.
    """
    with database.begin() as connection:
        return statements.mark_pass(connection, shift.id, passes)


def relieved(database: Database, shift: Shift, *, within: timedelta = RELIEF_WITHIN) -> bool:
    """Whether a younger shift of the same deployment is at work."""
    with database.begin() as connection:
        return statements.has_younger_at_work(connection, shift.id, within)


def end(database: Database, shift: Shift, how: End, *, passes: int = 0) -> bool:
    """End a shift. The first end stands: False when it had ended before."""
    with database.begin() as connection:
        return statements.end_shift(connection, shift.id, how, passes)


def stale(database: Database) -> list[Shift]:
    """Open shifts without a sign of life for SILENT_AFTER, oldest first."""
    with database.begin() as connection:
        return [_shift(row) for row in statements.silent_shifts(connection, SILENT_AFTER)]


def of_flow_run(database: Database, flow_run_id: str) -> list[Shift]:
    """The open shifts that a flow run hosts."""
    with database.begin() as connection:
        return [_shift(row) for row in statements.open_shifts_of(connection, flow_run_id)]


def standings(database: Database, flow_run_ids: Collection[str]) -> dict[str, Standing]:
    """Where these flow runs stand by our rows. One that never began a shift has no entry."""
    with database.begin() as connection:
        rows = statements.shifts_of(connection, flow_run_ids, SILENT_AFTER)
    return {row.flow_run_id: _standing(row.ended_how, row.silent) for row in rows}


def at_work(database: Database, deployment: str, *, within: timedelta = RELIEF_WITHIN) -> bool:
    """Whether any shift of the deployment has made a pass just now."""
    with database.begin() as connection:
        return statements.is_at_work(connection, deployment, within)


def clean(database: Database, *, older_than: timedelta) -> int:
    """Delete the rows of shifts that ended, or fell silent, longer ago than that. Returns how many."""
    with database.begin() as connection:
        return statements.delete_old_shifts(connection, older_than)


def _shift(row: AnyRow) -> Shift:
    return Shift(row.id, row.deployment, row.owner, row.flow_run_id)


def _standing(ended_how: End | None, silent: bool) -> Standing:
    if not silent:
        return "alive"
    return ended_how or "silent"
