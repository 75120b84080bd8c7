"""Waits between attempts: doubling, capped, spread out, and the same every time they are asked for."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core.retry import CAP, COMPENSATION_ATTEMPTS, COMPENSATION_BACKOFF, wait

BACKOFFS = st.timedeltas(min_value=timedelta(seconds=1), max_value=timedelta(hours=1))


@given(st.integers(1, 10), BACKOFFS, st.text())
def test_a_wait_is_between_the_doubled_backoff_and_a_fifth_more_and_never_above_six_hours(
    attempt: int, backoff: timedelta, seed: str
) -> None:
    least = backoff * 2 ** (attempt - 1)
    waited = wait(attempt, backoff, seed)
    assert min(least, timedelta(hours=6)) <= waited
    assert waited <= min(least * 1.2, timedelta(hours=6))


def test_the_cap_holds_with_the_jitter_included() -> None:
    almost = timedelta(hours=5, minutes=59, seconds=59)
    assert all(wait(1, almost, f"run {number}") <= CAP for number in range(200))
    assert wait(10, timedelta(hours=1), "any") == timedelta(hours=6)
    assert wait(10_000, timedelta(seconds=1), "any") == timedelta(hours=6)


def test_the_same_seed_waits_the_same_and_others_spread_over_the_whole_fifth() -> None:
    backoff = timedelta(seconds=100)
    assert wait(2, backoff, "wrn_1.sync") == wait(2, backoff, "wrn_1.sync")
    waits = [wait(1, backoff, f"wrn_{number}.sync") for number in range(2000)]
    assert len(set(waits)) == 2000
    tenths = [sum(1 for waited in waits if 100 + 2 * i <= waited.total_seconds() < 102 + 2 * i) for i in range(10)]
    assert min(tenths) > 120, "every tenth of the jitter gets about 200"


def test_the_attempts_of_one_step_do_not_share_their_jitter() -> None:
    spread = {wait(attempt, timedelta(seconds=1), "seed") / 2 ** (attempt - 1) for attempt in range(1, 9)}
    assert len(spread) == 8


@pytest.mark.parametrize("attempt", [0, -1])
def test_there_is_no_wait_before_the_first_attempt(attempt: int) -> None:
    with pytest.raises(ValueError, match="counted from 1"):
        wait(attempt, timedelta(seconds=30), "seed")


def test_a_compensation_gets_five_tries_from_thirty_seconds() -> None:
    assert COMPENSATION_ATTEMPTS == 5
    assert timedelta(seconds=30) <= wait(1, COMPENSATION_BACKOFF, "seed") <= timedelta(seconds=36)
