"""The loop of a shift, in a real thread, with passes driven by hand and a row in memory. No Prefect, no database."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from engine.core.shifts import End
from flows import shift as shift_module
from flows.shift import ShiftLoop, Terms
from tasks.passes import Occurrence, PassRecord

WITHIN = 5.0
"""Seconds a test waits for what must happen."""
IDLE = PassRecord(idle=True)
BUSY = PassRecord(idle=False, counts={"claimed": 3, "moved": 2}, occurrences=(Occurrence("engine.run.succeeded", "r"),))


class HandDrivenPasses:
    """Each pass waits for the test to say what it does: a record, or an error."""

    owner = "worker-test-1-a"

    def __init__(self) -> None:
        self.given: queue.Queue[PassRecord | Exception] = queue.Queue()
        self.asked = threading.Semaphore(0)
        """Released when a pass begins."""
        self.woken = threading.Event()
        self.closed = 0
        self.threads: set[str] = set()

    def once(self, beat: Callable[[], None]) -> PassRecord:
        self.threads.add(threading.current_thread().name)
        self.asked.release()
        given = self.given.get(timeout=WITHIN)
        if isinstance(given, Exception):
            raise given
        return given

    def wait(self, stop: threading.Event) -> None:
        if stop.is_set():
            self.woken.wait(WITHIN)

    def wake(self) -> None:
        self.woken.set()

    def close(self) -> int:
        self.closed += 1
        return 7


class Row:
    """The shift's row in memory."""

    def __init__(self, *, away_for: int = 0) -> None:
        self.away_for = away_for
        self.began: list[str] = []
        self.passes: list[int] = []
        self.is_relieved = False
        self.is_ended_by_others = False
        self.ends: list[tuple[End, int]] = []

    def begin(self, owner: str) -> None:
        if self.away_for:
            self.away_for -= 1
            raise ConnectionError("the database is away")
        self.began.append(owner)

    def passed(self, passes: int) -> bool:
        self.passes.append(passes)
        return not self.is_ended_by_others

    def relieved(self) -> bool:
        return self.is_relieved

    def end(self, how: End, passes: int) -> None:
        self.ends.append((how, passes))


class Clock:
    """A clock that stands still until told."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


class Hosted:
    """A loop in its thread, with all its parts."""

    def __init__(self, terms: Terms, row: Row) -> None:
        self.row, self.clock, self.passes = row, Clock(), HandDrivenPasses()
        self.loop = ShiftLoop(lambda: self.passes, row, terms, clock=self.clock)
        self.thread = threading.Thread(target=self.loop.run, name="the shift")

    def passes_once(self, given: PassRecord | Exception = IDLE) -> None:
        """Let one pass happen, and return when the next one has begun."""
        self.passes.given.put(given)
        assert self.passes.asked.acquire(timeout=WITHIN), "the loop made no further pass"

    def passes_last(self, given: PassRecord | Exception = IDLE) -> None:
        """Let one pass happen, after which the loop must end."""
        self.passes.given.put(given)
        assert self.loop.ended.wait(WITHIN), "the loop did not end"


@pytest.fixture(autouse=True)
def _no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shift_module, "FIRST_DELAY", 0.001)
    monkeypatch.setattr(shift_module, "LAST_DELAY", 0.01)


@contextmanager
def hosted(length: float = 300, cap: float = 3600, row: Row | None = None) -> Iterator[Hosted]:
    shift = Hosted(Terms(length, cap), row or Row())
    shift.thread.start()
    try:
        assert shift.passes.asked.acquire(timeout=WITHIN), "no pass was made"
        yield shift
    finally:
        shift.loop.stop("stopped")
        shift.passes.given.put(IDLE)
        shift.thread.join(WITHIN)
        assert not shift.thread.is_alive()


def test_a_stopped_shift_ends_at_the_boundary_of_its_pass_and_hands_its_leases_back() -> None:
    with hosted() as shift:
        shift.passes_once(BUSY)
        shift.loop.stop("stopped")
        assert not shift.loop.ended.is_set(), "a pass is in progress"
        shift.passes_last(BUSY)
        assert (shift.loop.how, shift.passes.closed, shift.loop.tally.handed_back) == ("stopped", 1, 7)
        assert shift.row.ends == [("stopped", 2)]
        assert shift.passes.threads == {"the shift"}


def test_a_stop_ends_the_wait_between_two_passes() -> None:
    with hosted() as shift:
        shift.loop.stop("cancelled")
        assert shift.passes.woken.is_set()


def test_the_first_reason_to_stop_stands() -> None:
    with hosted() as shift:
        shift.loop.stop("cancelled")
        shift.loop.stop("stopped")
        shift.passes_last()
        assert shift.row.ends == [("cancelled", 1)]


def test_an_error_in_a_pass_is_counted_and_the_next_pass_is_made() -> None:
    with hosted() as shift:
        for _ in range(12):
            shift.passes_once(ConnectionError("secret@example.org refused"))
        shift.passes_once(BUSY)
        shift.loop.stop("stopped")
        shift.passes_last()
        assert (shift.loop.tally.errors, shift.loop.tally.passes) == (12, 2)
        assert shift.loop.tally.rows()["errors: ConnectionError"] == 12
        assert "secret" not in f"{shift.loop.tally} {shift.loop.tally.rows()}"


def test_what_fails_is_tried_again_later_and_later_but_within_five_seconds() -> None:
    waited: list[float] = []

    class Patient(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            waited.append(timeout or 0)
            return super().wait(0)

    shift = Hosted(Terms(300, 3600), Row())
    shift.loop._stop = Patient()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shift_module, "FIRST_DELAY", 0.5)
        patch.setattr(shift_module, "LAST_DELAY", 5.0)
        shift.thread.start()
        assert shift.passes.asked.acquire(timeout=WITHIN)
        for _ in range(6):
            shift.passes_once(ConnectionError())
        shift.passes_once(IDLE)
        shift.passes_once(ConnectionError())
        shift.loop.stop("stopped")
        shift.passes_last()
    shift.thread.join(WITHIN)
    assert waited == [0.5, 1, 2, 4, 5, 5, 0.5]


def test_a_shift_begins_although_the_database_is_away_at_first() -> None:
    with hosted(row=Row(away_for=4)) as shift:
        assert shift.row.began == ["worker-test-1-a"]
        assert shift.loop.tally.errors == 4


def test_a_shift_stopped_before_it_began_ends_without_a_pass() -> None:
    row = Row(away_for=10**9)
    shift = Hosted(Terms(300, 3600), row)
    shift.thread.start()
    while row.away_for == 10**9:
        time.sleep(0.001)
    shift.loop.stop("stopped")
    assert shift.loop.ended.wait(WITHIN)
    shift.thread.join(WITHIN)
    assert (row.ends, shift.passes.closed, shift.loop.tally.passes) == ([], 1, 0)


def test_a_shift_whose_time_is_up_goes_on_until_a_younger_one_is_at_work() -> None:
    with hosted(length=300) as shift:
        shift.row.is_relieved = True
        shift.passes_once()
        shift.row.is_relieved = False
        for shift.clock.now in range(301, 310):
            shift.passes_once()
        shift.row.is_relieved = True
        shift.clock.now = 320
        shift.passes_last()
        assert shift.row.ends == [("relieved", 11)]


def test_a_shift_that_expires_goes_on_until_a_younger_one_is_at_work() -> None:
    with hosted(length=300) as shift:
        shift.loop.expire()
        shift.clock.now = 10
        shift.passes_once()
        shift.row.is_relieved = True
        shift.clock.now = 20
        shift.passes_last()
        assert shift.row.ends == [("relieved", 2)]


def test_without_any_relief_a_shift_ends_at_its_cap() -> None:
    with hosted(length=300, cap=7200) as shift:
        shift.clock.now = 7199
        shift.passes_once()
        shift.clock.now = 7200
        shift.passes_last()
        assert shift.row.ends == [("capped", 2)]


def test_a_shift_that_was_taken_for_dead_stops() -> None:
    with hosted() as shift:
        shift.clock.now = 2
        shift.row.is_ended_by_others = True
        shift.passes_last()
        assert shift.loop.how == "lost"


def test_the_row_is_written_at_the_first_pass_and_once_a_second_at_most() -> None:
    with hosted() as shift:
        for shift.clock.now in (0.0, 0.4, 0.8, 1.2, 1.6, 2.4):
            shift.passes_once()
        assert shift.row.passes == [1, 4, 6]


def test_a_finished_pass_ends_the_shift() -> None:
    with hosted(length=0) as shift:
        shift.passes_last(PassRecord(idle=False, counts={"runs": 5}, finished=True))
        assert shift.row.ends == [("finished", 1)]


def test_leases_that_cannot_be_handed_back_do_not_keep_the_shift_from_ending(monkeypatch: pytest.MonkeyPatch) -> None:
    with hosted() as shift:
        monkeypatch.setattr(shift.passes, "close", lambda: 1 / 0)
        shift.loop.stop("stopped")
        shift.passes_last()
        assert (shift.row.ends, shift.loop.tally.errors) == ([("stopped", 1)], 1)


def test_busy_passes_are_told_once_with_their_number() -> None:
    with hosted() as shift:
        shift.passes_once(IDLE)
        shift.passes_once(BUSY)
        assert shift.loop.tally.take() == [(2, BUSY)]
        assert shift.loop.tally.take() == []
        assert str(shift.loop.tally) == "2 passes, 1 busy, 3 claimed, 2 moved, 0 errors"
