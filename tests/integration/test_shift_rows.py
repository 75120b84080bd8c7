"""The rows of shifts, on a real PostgreSQL: who is relieved by whom, and who is taken for dead."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from db.session import Database
from engine.core import shifts

ADVANCE = "advance-runs"
FLOW_RUN = "0b0c5a2e-0000-4000-8000-000000000001"


def aged(database: Database, shift: shifts.Shift, seconds: float) -> None:
    """Let everything about a shift have happened so many seconds earlier."""
    with database.begin() as connection:
        connection.execute(
            text(
                "UPDATE shifts SET started_at = started_at - :age, last_pass_at = last_pass_at - :age,"
                " ended_at = ended_at - :age WHERE id = :id"
            ),
            {"age": timedelta(seconds=seconds), "id": shift.id},
        )


def test_a_shift_is_relieved_by_a_younger_one_once_that_has_made_a_pass(database: Database) -> None:
    older = shifts.begin(database, ADVANCE, "worker-a")
    younger = shifts.begin(database, ADVANCE, "worker-b")
    assert not shifts.relieved(database, older)
    shifts.passed(database, younger, 1)
    assert shifts.relieved(database, older)
    assert not shifts.relieved(database, younger)


def test_an_older_shift_relieves_nobody(database: Database) -> None:
    older = shifts.begin(database, ADVANCE, "worker-a")
    younger = shifts.begin(database, ADVANCE, "worker-b")
    shifts.passed(database, older, 100)
    assert not shifts.relieved(database, younger)


def test_a_younger_shift_of_another_deployment_relieves_nobody(database: Database) -> None:
    older = shifts.begin(database, ADVANCE, "worker-a")
    shifts.passed(database, shifts.begin(database, "fire-schedules", "scheduler-b"), 1)
    assert not shifts.relieved(database, older)


def test_a_younger_shift_that_ended_or_fell_silent_relieves_nobody(database: Database) -> None:
    older = shifts.begin(database, ADVANCE, "worker-a")
    younger = shifts.begin(database, ADVANCE, "worker-b")
    shifts.passed(database, younger, 1)
    aged(database, younger, 6)
    aged(database, older, 10)
    assert not shifts.relieved(database, older)
    assert shifts.relieved(database, older, within=timedelta(seconds=90)), "a loop that passes once a minute"
    shifts.end(database, younger, "stopped")
    assert not shifts.relieved(database, older, within=timedelta(seconds=90))


def test_a_shift_that_was_ended_by_others_learns_it_at_its_next_pass(database: Database) -> None:
    shift = shifts.begin(database, ADVANCE, "worker-a")
    assert shifts.passed(database, shift, 1)
    assert shifts.end(database, shift, "lost")
    assert not shifts.passed(database, shift, 2)


def test_the_first_end_of_a_shift_stands(database: Database) -> None:
    shift = shifts.begin(database, ADVANCE, "worker-a", FLOW_RUN)
    assert shifts.end(database, shift, "relieved", passes=7)
    assert not shifts.end(database, shift, "crashed")
    aged(database, shift, 121)
    assert shifts.standings(database, [FLOW_RUN]) == {FLOW_RUN: "relieved"}


def test_a_shift_without_a_pass_for_two_minutes_is_stale_also_when_it_never_made_one(database: Database) -> None:
    never = shifts.begin(database, ADVANCE, "worker-a", FLOW_RUN)
    once = shifts.begin(database, ADVANCE, "worker-b")
    shifts.passed(database, once, 1)
    alive = shifts.begin(database, ADVANCE, "worker-c")
    for shift in (never, once):
        aged(database, shift, 119)
    assert shifts.stale(database) == []
    for shift in (never, once):
        aged(database, shift, 2)
    assert shifts.stale(database) == [never, once]
    aged(database, alive, 300)
    shifts.passed(database, alive, 1)
    assert shifts.stale(database) == [never, once]


def test_flow_runs_stand_where_their_shifts_do(database: Database) -> None:
    runs = [f"{number:08d}-0000-4000-8000-000000000000" for number in range(5)]
    alive, silent, ended, ending = (shifts.begin(database, ADVANCE, f"worker-{run}", run) for run in runs[:4])
    for shift in (ended, ending):
        shifts.end(database, shift, "stopped")
    aged(database, silent, 121)
    aged(database, ended, 121)
    assert shifts.standings(database, runs) == {
        runs[0]: "alive",
        runs[1]: "silent",
        runs[2]: "stopped",
        runs[3]: "alive",  # its end may still be on its way to Prefect
    }
    assert shifts.of_flow_run(database, runs[0]) == [alive]
    assert shifts.of_flow_run(database, runs[2]) == []


def test_a_deployment_is_at_work_when_one_of_its_shifts_has_made_a_pass_just_now(database: Database) -> None:
    shift = shifts.begin(database, ADVANCE, "worker-a")
    assert not shifts.at_work(database, ADVANCE)
    shifts.passed(database, shift, 1)
    assert shifts.at_work(database, ADVANCE)
    assert not shifts.at_work(database, "fire-schedules")
    shifts.end(database, shift, "stopped")
    assert not shifts.at_work(database, ADVANCE)


def test_old_rows_are_cleaned_whether_or_not_they_were_ended(database: Database) -> None:
    ended, silent, alive, young = (shifts.begin(database, ADVANCE, f"worker-{name}") for name in "abcd")
    shifts.end(database, ended, "relieved")
    for shift in (ended, silent, alive):
        aged(database, shift, 8 * 86400)
    shifts.passed(database, alive, 10**6)
    assert shifts.clean(database, older_than=timedelta(days=7)) == 2
    assert {shift for shift in (ended, silent, alive, young) if shifts.passed(database, shift, 1)} == {alive, young}


def test_an_end_that_is_none_is_refused_by_the_table(database: Database) -> None:
    shift = shifts.begin(database, ADVANCE, "worker-a")
    with pytest.raises(IntegrityError):
        shifts.end(database, shift, "bored")  # type: ignore[arg-type]
