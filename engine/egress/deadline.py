"""One limit for a whole exchange. A limit a read is no limit: a byte now and then renews it (FAULTS.md, 26)."""

from __future__ import annotations

import time
from dataclasses import dataclass

_SHORTEST = 0.001
"""Seconds. A socket's timeout of 0 would mean "do not block"."""


class OutOfTime(TimeoutError):
    """The deadline has passed."""


@dataclass(frozen=True, slots=True)
class Deadline:
    """A moment on the monotonic clock, which no change of the wall clock moves."""

    until: float

    @classmethod
    def after(cls, seconds: float) -> Deadline:
        """The moment `seconds` from now."""
        if not seconds > 0:
            raise ValueError("a deadline lies in the future")
        return cls(time.monotonic() + seconds)

    @property
    def is_over(self) -> bool:
        """Whether nothing is left."""
        return time.monotonic() >= self.until

    def remaining(self) -> float:
        """Seconds left, above zero. Raises OutOfTime when there are none."""
        left = self.until - time.monotonic()
        if left <= 0:
            raise OutOfTime("the deadline has passed")
        return max(left, _SHORTEST)
