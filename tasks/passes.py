"""What a hosted loop is made of. The loop (flows/shift.py) knows only these shapes, so it runs without engine or Prefect."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Occurrence:
    """Something operators may filter for and automate on: a Prefect event. Ids and codes only."""

    event: str
    """Such as `engine.run.succeeded`."""
    resource: str
    """Such as `engine.run.wrn_...`."""
    related: tuple[tuple[str, str], ...] = ()
    """(role, resource) pairs."""
    payload: Mapping[str, str | int | bool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PassRecord:
    """What one pass did, as operators may see it."""

    idle: bool
    counts: Mapping[str, int] = field(default_factory=dict)
    """What was done, by name and in the order to be shown."""
    failed_attempts: Mapping[str, int] = field(default_factory=dict)
    """Failed attempts by category."""
    errors: int = 0
    occurrences: tuple[Occurrence, ...] = ()
    finished: bool = False
    """Whether there is nothing left to do in this shift (cleaning)."""

    def __str__(self) -> str:
        done = ", ".join(f"{name} {count}" for name, count in self.counts.items() if count)
        return f"{done or 'nothing'}{f', errors {self.errors}' if self.errors else ''}"


class Passes(Protocol):
    """The engine's side of a shift. Called from one thread, but for `wake`."""

    @property
    def owner(self) -> str:
        """The name that its leases carry."""

    def once(self, beat: Callable[[], None]) -> PassRecord:
        """One pass. A long one calls `beat` between its transactions, to show that it lives."""

    def wait(self, stop: threading.Event) -> None:
        """Until there may be something to do, or `stop`, or `wake`; a second or so at most when idle."""

    def wake(self) -> None:
        """End a `wait`, now or the next one. Safe from any thread."""

    def close(self) -> int:
        """Hand back every lease. Returns how many. Nothing is called after it."""
