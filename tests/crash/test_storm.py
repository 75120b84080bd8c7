"""The long form: everything at once, at random, for some minutes (TENURE_CRASH_MINUTES, 3 if it is not set).

Three workers, kept at three; runs of all sorts, kept coming; and a fault about twice a second: a worker killed, stopped for twice
its lease, or told to leave; sessions ended by the server; PostgreSQL restarted at once. The seed (TENURE_CRASH_SEED) is told at
the end. What is left is then brought to its end, and judged.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from rich.progress import Progress
from sqlalchemy.exc import OperationalError

from tests.crash import closing, judge
from tests.crash.kinds import KINDS
from tests.crash.stage import Stage
from tests.crash.story import Theatre
from tests.crash.workers import WorkerProcess, until

MINUTES = float(os.environ.get("TENURE_CRASH_MINUTES", "3"))
SEED = int(os.environ.get("TENURE_CRASH_SEED", str(time.time_ns() % 1_000_000)))

pytestmark = [pytest.mark.long, pytest.mark.timeout(MINUTES * 60 + 300)]

WORKERS = 3
LEASE = 4.0
FAULTS = {"killed": 20, "stopped": 2, "told to leave": 3, "sessions ended": 6, "PostgreSQL restarted": 1}
"""How often each, by weight."""

ENOUGH = 60
"""Runs that are under way at any time."""

ENDS = {"calling": {"succeeded"}, "five steps": {"succeeded"}, "asking": {"succeeded"}, "undone": {"compensated"}}


class Storm:
    """The workers, the work, and what is done to them."""

    def __init__(self, theatre: Theatre, stage: Stage) -> None:
        self.chance = random.Random(SEED)
        self.injected: Counter[str] = Counter()
        self._theatre = theatre
        self._stage = stage
        self._workers: list[WorkerProcess] = []
        self._leaving: list[WorkerProcess] = []
        self._stopped: dict[WorkerProcess, float] = {}
        self._flows = workflows(stage)

    def blow(self, seconds: float) -> None:
        """Faults, and work for the workers, for so long."""
        began = time.monotonic()
        with ThreadPoolExecutor(1, thread_name_prefix="feeder") as feeder, Progress(transient=True) as progress:
            feeding = feeder.submit(self._feed, began + seconds)
            bar = progress.add_task("storm", total=seconds)
            while (passed := time.monotonic() - began) < seconds:
                progress.update(bar, completed=passed, description=f"{self.injected.total()} faults")
                self._keep_blowing()
            feeding.result()

    def _keep_blowing(self) -> None:
        self._help_on()
        while len(self._workers) < WORKERS:
            self._workers.append(self._theatre.launcher.start(self._stage.database))
        kind = self.chance.choices(list(FAULTS), list(FAULTS.values()))[0]
        if self._inject(kind):
            self.injected[kind] += 1
        time.sleep(self.chance.uniform(0.1, 0.7))

    def calm_down(self) -> None:
        """No more faults; everything comes to its end, and the workers leave."""
        until(self._is_over, "all runs have ended", every=0.2, within=120)
        for worker in self._workers:
            worker.leave()
        for worker in self._leaving:
            worker.require_left()

    def states(self) -> dict[str, set[str]]:
        """The states in which the runs of each workflow have ended."""
        return {name: self._states(workflow_id) for name, workflow_id in self._flows.items()}

    def _states(self, workflow_id: str) -> set[str]:
        rows = self._stage.rows("SELECT DISTINCT state FROM workflow_runs WHERE workflow_id = :id", id=workflow_id)
        return {row.state for row in rows}

    def _is_over(self) -> bool:
        self._help_on()
        return self._stage.unfinished() == 0 and not self._stopped

    def _help_on(self) -> None:
        """Whoever waits is helped on; what a stopped worker or a restart is in the way of, the next time."""
        for worker, since in list(self._stopped.items()):
            if time.monotonic() - since > 2 * LEASE:
                worker.send(signal.SIGCONT)
                del self._stopped[worker]
        with suppress(OperationalError):
            self._stage.decide_approvals()
            self._stage.let_waits_end()
            self._stage.let_retries_come()

    def _feed(self, until_then: float) -> None:
        """Runs of all sorts, so that ENOUGH are under way. What a restart breaks off is tried again."""
        while time.monotonic() < until_then:
            with suppress(OperationalError):
                if self._stage.unfinished() < ENOUGH:
                    self._stage.begin(self._flows["five steps"], self._stage.newcomers(20), "event")
                    for name in ("calling", "asking", "undone"):
                        self._stage.begin(self._flows[name], self._stage.members(5))
            time.sleep(0.1)

    def _inject(self, kind: str) -> bool:
        """Whether it could be done."""
        if kind == "PostgreSQL restarted":
            self._theatre.restart_server()
            return True
        if kind == "sessions ended":
            return self._stage.end_sessions() > 0
        running = [worker for worker in self._workers if worker.is_ready and worker not in self._stopped]
        if not running:
            return False
        worker = self.chance.choice(running)
        if kind == "stopped":
            worker.send(signal.SIGSTOP)
            self._stopped[worker] = time.monotonic()
            return True
        worker.require_faultless()
        self._workers.remove(worker)
        worker.send(signal.SIGKILL if kind == "killed" else signal.SIGTERM)
        if kind != "killed":
            self._leaving.append(worker)
        return True


def workflows(stage: Stage) -> dict[str, str]:
    """One of each sort. Calls are tried as often as the source allows: a storm interrupts many."""
    (undone,) = (kind for kind in KINDS if kind.name == "three steps undone")
    retry = {"max_attempts": 10, "backoff": "1s"}
    call = {"id": "sync", "type": "call_webhook", "subscription_id": stage.endpoint, "retry": retry}
    asking = [
        {"id": "ask", "type": "approval", "approvers": [stage.approver], "expires_in": "1h"},
        {"id": "rest", "type": "wait", "for": "1m"},
        {"id": "tell", "type": "notify", "notice": "welcome"},
    ]
    return {
        "five steps": stage.five_steps(),
        "calling": stage.publish([call]),
        "asking": stage.publish(asking),
        "undone": stage.publish(
            [{**step, "retry": retry} if step["id"] == "sync" else step for step in undone.steps(stage)]
        ),
    }


def test_a_storm_of_faults_is_survived(theatre: Theatre) -> None:
    with theatre.stage() as stage:
        began = time.monotonic()
        storm = Storm(theatre, stage)
        storm.blow(60 * MINUTES)
        storm.calm_down()
        judge.require_sound(stage.database)
        calls = stage.calls(theatre.receiver)
        judge.require_calls_sound(stage.database, calls)
        assert storm.states() == ENDS, SEED
        told = ", ".join(f"{kind} {count}" for kind, count in storm.injected.most_common())
        closing.add_test(
            stage,
            "storm",
            faults=storm.injected.total(),
            began=began,
            calls=len(calls),
            remark=f"{told}; {closing.pace(stage)}; seed {SEED}",
        )
