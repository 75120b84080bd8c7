"""The row of a shift, and what is done for one whose process is dead."""

from __future__ import annotations

import logging
from collections.abc import Collection
from datetime import timedelta

from engine.core import leases, shifts
from engine.core.settings import WorkerSettings
from engine.core.shifts import End, Shift, Standing
from tasks.database import database

log = logging.getLogger("engine.shifts")

RELIEF_FACTOR = 1.5
"""A younger shift that passes once in `interval` seconds is seen for this many intervals."""


class Attendance:
    """The row of one shift. Every call may raise while the database is away; none is needed for the engine to be right."""

    def __init__(self, deployment: str, flow_run_id: str | None, interval: float) -> None:
        self._deployment = deployment
        self._flow_run_id = flow_run_id
        self._within = max(shifts.RELIEF_WITHIN, timedelta(seconds=RELIEF_FACTOR * interval))
        self._shift: Shift | None = None

    def begin(self, owner: str) -> None:
        """Open the row."""
        self._shift = shifts.begin(database(), self._deployment, owner, self._flow_run_id)

    def passed(self, passes: int) -> bool:
        """Show that the shift lives. False when somebody ended it."""
        return shifts.passed(database(), self._begun, passes)

    def relieved(self) -> bool:
        """Whether a younger shift is at work."""
        return shifts.relieved(database(), self._begun, within=self._within)

    def end(self, how: End, passes: int) -> None:
        """End the row."""
        shifts.end(database(), self._begun, how, passes=passes)

    @property
    def _begun(self) -> Shift:
        if self._shift is None:
            raise RuntimeError("the shift has not begun")
        return self._shift


def poll_interval() -> timedelta:
    """How far apart the passes of an idle worker are, at most."""
    return WorkerSettings().poll_interval


def at_work(deployment: str, within: timedelta) -> bool:
    """Whether a shift of the deployment has made a pass within that time."""
    return shifts.at_work(database(), deployment, within=within)


def bury(flow_run_id: str, how: End) -> int:
    """Free what a dead flow run left: hand back its leases by their owner's name, end its rows. Returns leases handed back."""
    return sum(_bury(shift, how) for shift in shifts.of_flow_run(database(), flow_run_id))


def silent() -> list[Shift]:
    """Open shifts without a sign of life for two minutes."""
    return shifts.stale(database())


def bury_silent(shift: Shift) -> int:
    """The same for a shift that is silent, whoever hosted it."""
    return _bury(shift, "lost")


def standings(flow_run_ids: Collection[str]) -> dict[str, Standing]:
    """Where flow runs stand by our own rows; one that never began a shift has no entry."""
    return shifts.standings(database(), flow_run_ids)


def _bury(shift: Shift, how: End) -> int:
    handed_back: int = leases.hand_back(database(), shift.owner)
    if shifts.end(database(), shift, how):
        log.warning("Shift %s of %s ended: %s; %d leases handed back", shift.id, shift.deployment, how, handed_back)
    return handed_back
