"""One pass of retention: finished runs and what hangs on them, dispatched outbox rows, sent messages, and old shifts."""

from __future__ import annotations

import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from datetime import timedelta

from engine.core import shifts
from engine.lifecycle import retention
from tasks.database import database
from tasks.passes import PassRecord

log = logging.getLogger("engine.history")

KEEP_SHIFTS = timedelta(days=7)
"""Shift rows are of use for days, not for as long as runs are kept."""
TELL_EVERY = 5.0
"""Seconds between two lines of progress."""


class _Stopped(Exception):
    """Raised between two transactions of the cleaning, to end it."""


def open_passes(older_than: timedelta) -> CleanPasses:
    """Open the cleaning's only pass. Raises when the database is away."""
    opened = database()
    return CleanPasses(
        clean=lambda progress: retention.clean(opened, older_than=older_than, progress=progress),
        clean_shifts=lambda: shifts.clean(opened, older_than=min(older_than, KEEP_SHIFTS)),
    )


class CleanPasses:
    """One pass, in short transactions, that ends at the next of them when woken."""

    def __init__(
        self, clean: Callable[[Callable[[int], None]], dict[str, int]], clean_shifts: Callable[[], int]
    ) -> None:
        self.owner = f"cleaner-{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        self._clean = clean
        self._clean_shifts = clean_shifts
        self._woken = threading.Event()
        self._told_at = time.monotonic()

    def once(self, beat: Callable[[], None]) -> PassRecord:
        removed = 0

        def progress(count: int) -> None:
            nonlocal removed
            removed += count
            beat()
            self._tell(removed)
            if self._woken.is_set():
                raise _Stopped

        try:
            cleaned = self._clean(progress)
        except _Stopped:
            return PassRecord(idle=False, counts={"rows": removed}, finished=True)
        counts = {**cleaned, "shifts": self._clean_shifts()}
        return PassRecord(idle=not any(counts.values()), counts=counts, finished=True)

    def _tell(self, removed: int) -> None:
        if time.monotonic() - self._told_at >= TELL_EVERY:
            self._told_at = time.monotonic()
            log.info("Cleaning history: %d rows so far", removed)

    def wait(self, stop: threading.Event) -> None:
        """Nothing to wait for: the only pass finishes."""

    def wake(self) -> None:
        self._woken.set()

    def close(self) -> int:
        return 0
