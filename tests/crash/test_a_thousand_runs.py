"""A thousand runs of five internal steps, started by events: all succeed, 5,000 steps, nothing twice.

With two worker processes, and the same with PostgreSQL restarted at once in the middle.
"""

from __future__ import annotations

import time

import pytest

from tests.crash import closing, judge
from tests.crash.stage import Stage
from tests.crash.story import Theatre
from tests.crash.workers import until

RUNS = 1000


@pytest.mark.long
def test_a_thousand_runs_succeed_with_every_step_once(theatre: Theatre) -> None:
    with theatre.stage() as stage:
        began = time.monotonic()
        take_a_thousand_in(theatre, stage, restarts=0)
        closing.add_test(stage, "a thousand runs", faults=0, began=began, remark=closing.pace(stage))


@pytest.mark.long
def test_a_thousand_runs_succeed_with_every_step_once_though_the_database_restarts(theatre: Theatre) -> None:
    with theatre.stage() as stage:
        began = time.monotonic()
        take_a_thousand_in(theatre, stage, restarts=2)
        closing.add_test(
            stage, "a thousand runs, PostgreSQL restarted", faults=2, began=began, remark=closing.pace(stage)
        )


def take_a_thousand_in(theatre: Theatre, stage: Stage, *, restarts: int) -> None:
    """Two workers take a thousand runs to their end; the server restarts as often, each time after another part of the steps."""
    workflow_id = stage.five_steps()
    newcomers = stage.newcomers(RUNS)
    workers = [theatre.launcher.start(stage.database).wait_ready() for _ in range(2)]
    stage.begin(workflow_id, newcomers, "event")
    done = "SELECT count(*) FROM workflow_step_attempts"
    for part in range(1, restarts + 1):
        enough = 5 * RUNS * part // (restarts + 1)
        until(lambda wanted=enough: stage.rows(done)[0][0] >= wanted, f"{enough} steps are done")
        assert stage.unfinished(), "the restart comes in the middle"
        theatre.restart_server()
    until(lambda: stage.unfinished() == 0, "all runs have ended", every=0.05)
    for worker in workers:
        worker.leave()
    judge.require_five_steps_done_once(stage.database, RUNS)
