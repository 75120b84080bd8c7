"""Passes of the scheduler: every slot that is due is filled, one pass a minute."""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Protocol

from engine.lifecycle.schedules import fire_due
from tasks.database import database
from tasks.passes import Occurrence, PassRecord


class FiredSlot(Protocol):
    """What is used of engine.lifecycle.schedules.FiredSlot."""

    @property
    def realm_id(self) -> str: ...
    @property
    def workflow_id(self) -> str: ...
    @property
    def slot(self) -> datetime: ...
    @property
    def started(self) -> int: ...
    @property
    def complete(self) -> bool: ...


def open_passes(interval: float) -> FirePasses:
    """Open the scheduler's passes, one each `interval` seconds. Raises when the database is away."""
    opened = database()
    return FirePasses(lambda between: fire_due(opened, between), interval)


class FirePasses:
    """The scheduler's passes. It holds no lease: a slot is taken by compare and set."""

    def __init__(self, fire: Callable[[Callable[[], bool]], Iterable[FiredSlot]], interval: float) -> None:
        self.owner = f"scheduler-{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        self._fire = fire
        self._interval = interval
        self._next_at = time.monotonic()
        self._woken = threading.Event()

    def once(self, beat: Callable[[], None]) -> PassRecord:
        self._next_at = max(self._next_at + self._interval, time.monotonic())

        def between() -> bool:
            beat()
            return not self._woken.is_set()

        return record(self._fire(between))

    def wait(self, stop: threading.Event) -> None:
        """Until the next pass is due: the rhythm holds, however long a pass took."""
        if not stop.is_set() and (left := self._next_at - time.monotonic()) > 0:
            self._woken.wait(left)
        self._woken.clear()

    def wake(self) -> None:
        self._woken.set()

    def close(self) -> int:
        return 0


def record(slots: Iterable[FiredSlot]) -> PassRecord:
    """The slots of a pass in the operators' words."""
    fired = list(slots)
    return PassRecord(
        idle=not fired,
        counts={
            "slots": len(fired),
            "started": sum(slot.started for slot in fired),
            "incomplete": sum(not slot.complete for slot in fired),
        },
        occurrences=tuple(_fired(slot) for slot in fired),
    )


def _fired(slot: FiredSlot) -> Occurrence:
    return Occurrence(
        event="engine.schedule.fired",
        resource=f"engine.workflow.{slot.workflow_id}",
        related=(("realm", f"engine.realm.{slot.realm_id}"),),
        payload={"slot": slot.slot.isoformat(), "started": slot.started, "complete": slot.complete},
    )
