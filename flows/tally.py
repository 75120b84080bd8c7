"""What a shift has done so far: written by the loop's thread, read by the main thread, bounded however long nobody reads."""

from __future__ import annotations

import threading
from collections import Counter, deque

from tasks.passes import PassRecord

UNREAD_PASSES = 1000
"""Busy passes kept for the main thread while the Prefect server holds it up. Older ones are only counted."""


class Tally:
    """Counts of one shift, and its busy passes that have not been shown yet."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._unread: deque[tuple[int, PassRecord]] = deque(maxlen=UNREAD_PASSES)
        self._counts: Counter[str] = Counter()
        self._failed_attempts: Counter[str] = Counter()
        self._faults: Counter[str] = Counter()
        self.passes = 0
        self.busy = 0
        self.handed_back = 0

    def add(self, record: PassRecord) -> None:
        """A pass came back."""
        with self._lock:
            self.passes += 1
            self._counts.update(record.counts)
            self._failed_attempts.update(record.failed_attempts)
            if record.errors:
                self._faults["inside a pass"] += record.errors
            if not record.idle:
                self.busy += 1
                self._unread.append((self.passes, record))

    def add_fault(self, fault: str) -> None:
        """Something of the shift itself failed: `fault` says what, without its message."""
        with self._lock:
            self._faults[fault] += 1

    def take(self) -> list[tuple[int, PassRecord]]:
        """The busy passes since the last call, by number."""
        with self._lock:
            taken = list(self._unread)
            self._unread.clear()
            return taken

    @property
    def errors(self) -> int:
        with self._lock:
            return self._faults.total()

    def rows(self) -> dict[str, int]:
        """Everything counted, in the order to be shown."""
        with self._lock:
            return {
                "passes": self.passes,
                "busy passes": self.busy,
                **self._counts,
                **{f"failed attempts: {category}": count for category, count in sorted(self._failed_attempts.items())},
                **{f"errors: {fault}": count for fault, count in sorted(self._faults.items())},
                "leases handed back": self.handed_back,
            }

    def __str__(self) -> str:
        with self._lock:
            done = [f"{count} {name}" for name, count in self._counts.items() if count]
            parts = [f"{self.passes} passes", f"{self.busy} busy", *done, f"{self._faults.total()} errors"]
            return ", ".join(parts)
