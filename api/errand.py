"""A fetch of keys under way, and how long those who need it wait for it. The times are of the real clock, in seconds."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

from engine.egress.deadline import Deadline

MOMENT = 0.2
"""Seconds that a fetch may take to end when its deadline is over."""


@dataclass(frozen=True, slots=True)
class Errand:
    """A fetch under way."""

    deadline: Deadline
    """By then it gives up, and has ended a moment later."""
    for_a_stranger: bool
    done: threading.Event = field(default_factory=threading.Event)

    @classmethod
    def within(cls, timeout: float, *, for_a_stranger: bool) -> Errand:
        """One that has this long, in seconds, from now on."""
        return cls(Deadline.after(timeout), for_a_stranger)

    def wait(self) -> None:
        """Until it has ended."""
        self.done.wait(_left(self.deadline) + MOMENT)


def _left(deadline: Deadline) -> float:
    """Seconds; none when it is over, which is no failure here."""
    return max(0.0, deadline.until - time.monotonic())
