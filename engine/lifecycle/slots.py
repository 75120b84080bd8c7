"""Slots: multiples of a schedule's `every` from the workflow's first publication, in UTC elapsed time."""

from __future__ import annotations

from datetime import datetime, timedelta


def slot_after(anchor: datetime, every: timedelta, moment: datetime) -> datetime:
    """The first slot after `moment`. The anchor itself is no slot: the first comes one `every` later."""
    return anchor + every * ((max(moment, anchor) - anchor) // every + 1)


def slot_at(anchor: datetime, every: timedelta, moment: datetime) -> datetime:
    """The latest slot that is not after `moment`. Slots before it that nobody fired are missed, not caught up."""
    return anchor + every * ((moment - anchor) // every)


def slots_between(first: datetime, last: datetime, every: timedelta) -> int:
    """How many slots lie from `first` up to `last`, the last not counted."""
    return max(0, (last - first) // every)
