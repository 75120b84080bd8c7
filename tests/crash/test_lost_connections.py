"""Connections that go in the middle of something: answers to COMMIT that are lost, sessions that the server ends.

A COMMIT without an answer is unknown, not failed (lifecycle.md, decision 5): the run is read again before anything is decided
about it. Nobody's run is marked failed because the database was away.
"""

from __future__ import annotations

import random
import time

from tests.crash import closing, judge
from tests.crash.lossy_proxy import a_lossy_proxy
from tests.crash.stage import Stage
from tests.crash.story import Theatre
from tests.crash.workers import WorkerProcess, until

RUNS = 200
LOSE_EVERY = 8
"""COMMITs of which one is lost."""

SMALL = {"TENURE_BATCH_SIZE": "10"}
"""Batches small enough that there are many of them."""

TERMINATIONS = 12


def test_runs_are_done_once_though_answers_to_commit_are_lost(theatre: Theatre) -> None:
    with theatre.stage() as stage:
        began = time.monotonic()
        workflow_id = stage.five_steps()
        stage.begin(workflow_id, stage.newcomers(RUNS), "event")
        with a_lossy_proxy(theatre.port, every=LOSE_EVERY) as proxy:
            through = stage.database.app_url.set(host="127.0.0.1", port=proxy.port, query={})
            workers = [theatre.launcher.start(stage.database, url=through, **SMALL) for _ in range(2)]
            drained(stage, workers)
            assert proxy.done_unheard >= 3, proxy
            assert proxy.never_arrived >= 3, proxy
        remark = f"{proxy.lost} of {proxy.commits} COMMITs lost, {proxy.done_unheard} of them done"
        closing.add_test(stage, "answers to COMMIT lost", faults=proxy.lost, began=began, remark=remark)


def test_runs_are_done_once_though_the_server_ends_sessions_in_mid_batch(theatre: Theatre) -> None:
    chance = random.Random(14)
    with theatre.stage() as stage:
        began = time.monotonic()
        workflow_id = stage.five_steps()
        stage.begin(workflow_id, stage.newcomers(RUNS), "event")
        workers = [theatre.launcher.start(stage.database, **SMALL).wait_ready() for _ in range(2)]
        ended = 0
        deadline = time.monotonic() + 30
        while ended < TERMINATIONS and stage.unfinished() and time.monotonic() < deadline:
            ended += stage.end_sessions()
            time.sleep(chance.uniform(0.02, 0.15))
        drained(stage, workers)
        assert ended >= 3
        closing.add_test(stage, "sessions ended by the server", faults=ended, began=began)


def drained(stage: Stage, workers: list[WorkerProcess]) -> None:
    """All runs succeed, with everything once, and the workers have met nothing but outages."""
    until(lambda: stage.unfinished() == 0, "all runs have ended", every=0.05)
    for worker in workers:
        worker.leave()
    judge.require_five_steps_done_once(stage.database, RUNS)
