"""How long to wait before trying again: doubling, capped, and spread out (source: "Limits and validation").

Pure: the jitter comes from a seed, so a decision replayed gives the same moment, and runs that failed together still
come back apart, since each brings its own seed.
"""

from __future__ import annotations

import hashlib
from datetime import timedelta

from tenacity import RetryCallState, Retrying
from tenacity.wait import wait_exponential

CAP = timedelta(hours=6)
"""No wait is longer, its jitter included."""

JITTER = 0.2
"""The part of a wait that is added at most."""

COMPENSATION_ATTEMPTS = 5
"""Tries of one compensation in total (source: "Compensation")."""

COMPENSATION_BACKOFF = timedelta(seconds=30)
"""The wait after the first of them; it doubles as all waits do."""

_NOBODY = Retrying()


def wait(attempt: int, backoff: timedelta, seed: str) -> timedelta:
    """The wait after attempt number `attempt` (from 1) failed: at least the doubled `backoff`, at most CAP.

    `seed` is any text that names what is tried again, such as the idempotency key of a step.
    """
    if attempt < 1:
        raise ValueError(f"attempts are counted from 1, not {attempt}")
    least = _doubled(attempt, backoff)
    return min(least + least * (JITTER * _fraction(attempt, seed)), CAP)


def _doubled(attempt: int, backoff: timedelta) -> timedelta:
    """Tenacity's doubling. Its jitter is not used: it asks the random module, and a decision must not."""
    state = RetryCallState(_NOBODY, None, (), {})
    state.attempt_number = attempt
    return timedelta(seconds=wait_exponential(multiplier=backoff.total_seconds(), max=CAP)(state))


def _fraction(attempt: int, seed: str) -> float:
    """A number from 0 to 1 that looks like chance and is not."""
    digest = hashlib.blake2b(f"{attempt}:{seed}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64
