"""A thousand runs through the real flow: Prefect's server and host start `advance-runs`, whose flow process is the worker.

All succeed, 5,000 steps, nothing twice; and the same with PostgreSQL restarted at once in the middle, and with the flow's process
killed in the middle. The stack restarts the one, Prefect replaces the other.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import pytest

from cli.stack import Stack as TenureStack
from cli.stack import StackSettings
from tests.crash import closing, judge
from tests.crash.receiver import Receiver
from tests.crash.stage import Stage
from tests.crash.story import stop_at_once
from tests.crash.workers import until
from tests.database import server_folder

pytestmark = [pytest.mark.prefect, pytest.mark.timeout(400)]

FAULTS = [
    "nothing happens",
    "PostgreSQL restarts",
    pytest.param("the flow's process is killed", marks=pytest.mark.long),
]
RUNS = 1000
WITHIN = 240.0
"""Seconds: a shift whose process was killed is replaced in some ten, a lease that nobody handed back ends after thirty."""


@pytest.fixture(scope="module")
def stage(receiver: Receiver) -> Iterator[Stage]:
    """A realm in a whole stack that runs."""
    with server_folder() as folder, TenureStack(StackSettings(folder, api_port=0, prefect_port=0)) as stack:
        judge.install(stack.database)
        yield Stage.built(stack.database, receiver)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_thousand_runs_succeed_with_every_step_once_while(fault: str, stage: Stage) -> None:
    began = time.monotonic()
    before = len(stage.rows("SELECT FROM workflow_runs"))
    stage.execute("UPDATE workflows SET state = 'disabled'")
    workflow_id = stage.five_steps()
    newcomers = stage.newcomers(RUNS)
    stage.begin(workflow_id, newcomers, "event")

    if fault != "nothing happens":
        done = "SELECT count(*) FROM workflow_step_attempts"
        enough = 5 * before + 5 * RUNS // 2
        until(lambda: stage.rows(done)[0][0] >= enough, "half of the steps are done", within=WITHIN)
        assert stage.unfinished(), "it happens in the middle"
    if fault == "PostgreSQL restarts":
        stop_at_once(stage.database.settings.data_dir)
    elif fault == "the flow's process is killed":
        kill_flow_process(stage)

    until(lambda: stage.unfinished() == 0, "all runs have ended", within=WITHIN, every=0.1)
    judge.require_five_steps_done_once(stage.database, before + RUNS)
    what, faults = f"a thousand under Prefect, {fault}", int(fault != "nothing happens")
    closing.add_test(stage, what, faults=faults, began=began, remark=closing.pace(stage, workflow_id))


def kill_flow_process(stage: Stage) -> None:
    """SIGKILL to the process that holds leases: its id is part of the owner's name."""
    held = "SELECT lease_owner FROM workflow_runs WHERE lease_owner IS NOT NULL LIMIT 1"
    (row,) = until(lambda: stage.rows(held), "somebody holds a lease", every=0)
    os.kill(int(row.lease_owner.split("-")[-2]), signal.SIGKILL)
