"""Passes of the worker, the scheduler and the cleaner, in the words of operators."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from engine.lifecycle.schedules import FiredSlot
from engine.lifecycle.worker import EndedRun, PassReport
from tasks import advance, fire
from tasks.clean import CleanPasses
from tasks.fire import FirePasses
from tasks.passes import Occurrence, PassRecord


def no_beat() -> None:
    """The shift lives anyway."""


def test_a_workers_report_becomes_counts_and_an_occurrence_for_every_run_that_ended() -> None:
    report = PassReport(
        claimed=2,
        moved=3,
        ended=(EndedRun("rlm_1", "wrn_1", "wfl_1", "compensation_failed"),),
        failed_attempts={"timeout": 2},
        errors=1,
    )
    shown = advance.record(report)
    assert str(shown) == "claimed 2, moved 3, errors 1"
    assert (shown.idle, shown.failed_attempts, shown.errors) == (False, {"timeout": 2}, 1)
    assert shown.occurrences == (
        Occurrence(
            "engine.run.compensation_failed",
            "engine.run.wrn_1",
            (("workflow", "engine.workflow.wfl_1"), ("realm", "engine.realm.rlm_1")),
        ),
    )


def test_an_idle_report_is_idle() -> None:
    assert advance.record(PassReport()).idle
    assert str(advance.record(PassReport())) == "nothing"


def test_every_count_of_a_workers_report_is_shown() -> None:
    counted = {name for name, kind in PassReport.__annotations__.items() if kind == "int"}
    assert set(advance.COUNTS) == counted - {"errors"}


def test_slots_become_counts_and_an_occurrence_each() -> None:
    slot = datetime(2030, 1, 1, tzinfo=UTC)
    shown = fire.record([FiredSlot("rlm_1", "wfl_1", slot, 500, False), FiredSlot("rlm_1", "wfl_2", slot, 3, True)])
    assert shown.counts == {"slots": 2, "started": 503, "incomplete": 1}
    assert shown.occurrences[0].payload == {"slot": "2030-01-01T00:00:00+00:00", "started": 500, "complete": False}
    assert fire.record([]).idle


def test_the_scheduler_waits_for_its_next_minute_and_a_stop_ends_the_wait() -> None:
    passes = FirePasses(lambda between: [], interval=60)
    passes.once(no_beat)
    stop = threading.Event()
    waiting = threading.Thread(target=passes.wait, args=(stop,))
    waiting.start()
    waiting.join(0.05)
    assert waiting.is_alive()
    stop.set()
    passes.wake()
    waiting.join(5)
    assert not waiting.is_alive()
    passes.wait(stop)


def test_the_scheduler_does_not_wait_when_a_pass_took_longer_than_its_interval(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    passes = FirePasses(lambda between: [], interval=0.001)
    passes.once(no_beat)
    time.sleep(0.002)
    monkeypatch.setattr(passes._woken, "wait", lambda timeout: pytest.fail("it waited"))
    passes.wait(threading.Event())


def test_the_scheduler_is_asked_between_two_transactions_whether_to_go_on() -> None:
    beats: list[int] = []
    answers: list[bool] = []

    def fire_slots(between: Callable[[], bool]) -> list[FiredSlot]:
        answers.append(between())
        passes.wake()
        answers.append(between())
        return []

    passes = FirePasses(fire_slots, interval=60)
    passes.once(lambda: beats.append(1))
    assert (answers, len(beats)) == ([True, False], 2)


def test_cleaning_is_one_pass_that_shows_it_lives_at_every_transaction() -> None:
    beats: list[int] = []

    def clean(progress: Callable[[int], None]) -> dict[str, int]:
        for count in (500, 500, 3):
            progress(count)
        return {"runs": 1000, "outbox": 3, "messages": 0}

    passes = CleanPasses(clean, clean_shifts=lambda: 7)
    shown = passes.once(lambda: beats.append(1))
    assert shown == PassRecord(
        idle=False, counts={"runs": 1000, "outbox": 3, "messages": 0, "shifts": 7}, finished=True
    )
    assert len(beats) == 3


def test_cleaning_stops_at_the_next_transaction() -> None:
    transactions: list[int] = []

    def clean(progress: Callable[[int], None]) -> dict[str, int]:
        while True:
            transactions.append(500)
            if len(transactions) == 2:
                passes.wake()
            progress(500)

    passes = CleanPasses(clean, clean_shifts=lambda: 1 // 0)
    assert passes.once(no_beat) == PassRecord(idle=False, counts={"rows": 1000}, finished=True)
    assert len(transactions) == 2
