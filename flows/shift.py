"""The loop of a relieved shift. It knows no Prefect, so that nothing of Prefect can hold up a pass.

A shift is as long as its terms say, and then until a younger one has made a pass, with a cap of hours. So one that starts
late, early or twice leaves no hole, and the loop outlives any outage of the Prefect server. An error never ends it: a pass
that fails is counted and tried again, after 0.5 s at first and 5 s at most, for the database may be away.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from engine.core.faults import message_of, place_of
from engine.core.shifts import End
from flows.tally import Tally
from tasks.passes import Passes

log = logging.getLogger("engine.shift")

FIRST_DELAY = 0.5
LAST_DELAY = 5.0
"""Seconds between two tries of what fails: doubling from the first to the last."""
BEAT_EVERY = 1.0
"""Seconds between two writes of the shift's row, at least; and between two looks for a relief."""


@dataclass(frozen=True, slots=True)
class Terms:
    """How long a shift is, in seconds. At `cap` it ends without a relief."""

    length: float
    cap: float


class Attended(Protocol):
    """The row of a shift (tasks/attendance.py). Every call may raise while the database is away."""

    def begin(self, owner: str) -> None: ...
    def passed(self, passes: int) -> bool: ...
    def relieved(self) -> bool: ...
    def end(self, how: End, passes: int) -> None: ...


class ShiftLoop:
    """One shift. `run` belongs to its own thread; all else may be called from another."""

    def __init__(
        self,
        open_passes: Callable[[], Passes],
        attendance: Attended,
        terms: Terms,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.tally = Tally()
        self.ended = threading.Event()
        """Set when every lease is handed back and the row is ended, as far as the database would have it."""
        self.how: End = "stopped"
        self._open_passes = open_passes
        self._attendance = attendance
        self._terms = terms
        self._clock = clock
        self._stop = threading.Event()
        self._reason = threading.Lock()
        self._passes: Passes | None = None
        self._begun = False
        self._began_at = clock()
        self._beat_at = self._looked_at = float("-inf")
        self._failures = 0

    def stop(self, how: End) -> None:
        """End at the next boundary of a pass. The first reason stands."""
        with self._reason:
            if not self._stop.is_set():
                self.how = how
                self._stop.set()
        if (passes := self._passes) is not None:
            passes.wake()

    def expire(self) -> None:
        """Its time is up now, whatever its terms say: end as soon as a younger shift is at work."""
        self._terms = replace(self._terms, length=0)

    def run(self) -> None:
        """The shift, from its beginning to its end."""
        try:
            if (passes := self._begin()) is not None:
                self._work(passes)
        finally:
            try:
                self._end()
            finally:
                self.ended.set()

    def _begin(self) -> Passes | None:
        """Open what the passes need and the row, for as long as it takes. None when stopped before."""
        while not self._is_over():
            try:
                if self._passes is None:
                    self._passes = self._open_passes()
                self._attendance.begin(self._passes.owner)
                self._begun, self._failures = True, 0
                return self._passes
            except Exception as error:
                self._back_off("the shift cannot begin", error)
        return None

    def _work(self, passes: Passes) -> None:
        while not self._is_over():
            try:
                record = passes.once(self._beat)
                self.tally.add(record)
                self._failures = 0
                if record.finished:
                    self.stop("finished")
                    return
                self._beat()
                if self._is_relieved():
                    return
                passes.wait(self._stop)
            except Exception as error:
                self._back_off("a pass failed", error)

    def _is_over(self) -> bool:
        if self._age >= self._terms.cap:
            self.stop("capped")
        return self._stop.is_set()

    def _is_relieved(self) -> bool:
        """Time is up, and a younger shift is at work."""
        now = self._clock()
        if self._age < self._terms.length or now - self._looked_at < BEAT_EVERY:
            return False
        self._looked_at = now
        if self._attendance.relieved():
            self.stop("relieved")
        return self._stop.is_set()

    def _beat(self) -> None:
        """Show that the shift lives. Whoever finds its row ended was taken for dead, and must stop."""
        now = self._clock()
        if now - self._beat_at < BEAT_EVERY:
            return
        if not self._attendance.passed(self.tally.passes):
            self.stop("lost")
        self._beat_at = now

    def _end(self) -> None:
        if self._passes is None:
            return
        try:
            self.tally.handed_back = self._passes.close()
        except Exception as error:
            self._count("leases were not handed back", error)
        if not self._begun:
            return
        try:
            self._attendance.end(self.how, self.tally.passes)
        except Exception as error:
            self._count("the shift's row was not ended", error)

    def _back_off(self, what: str, error: Exception) -> None:
        self._count(what, error)
        self._stop.wait(min(LAST_DELAY, FIRST_DELAY * 2 ** min(self._failures, 10)))
        self._failures += 1

    def _count(self, what: str, error: Exception) -> None:
        fault = message_of(error)
        self.tally.add_fault(fault)
        log.error("%s: %s at %s", what.capitalize(), fault, place_of(error))

    @property
    def _age(self) -> float:
        return self._clock() - self._began_at
