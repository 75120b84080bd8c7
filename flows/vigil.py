"""A deployment without a shift at work is run at once, instead of at its next slot.

It closes every hole that schedules and the "replace a crashed shift" trigger leave open: the first start, a host that was
drained or killed, an event lost while the Prefect server was away. A paused deployment stays paused. Two vigils that act at
once do no harm: shifts overlap, and the older is relieved.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta

from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterDeploymentId,
    FlowRunFilterExpectedStartTime,
    FlowRunFilterState,
    FlowRunFilterStateType,
)
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.client.schemas.responses import DeploymentResponse
from prefect.exceptions import ObjectNotFound

from flows.server import client
from tasks import attendance

log = logging.getLogger("engine.shifts")

PATIENCE = {
    "advance-runs": max(timedelta(seconds=15), 3 * attendance.poll_interval()),
    "fire-schedules": timedelta(seconds=150),
}
"""How old the last pass of a deployment's shifts may be. In the order of need: one at a time is started."""
STARTING = timedelta(seconds=60)
"""A run that was to start this recently is waited for."""
SOON = timedelta(seconds=10)
"""And one that is to start this soon: hosts take runs that much ahead."""
FIRST_PASS_WITHIN = timedelta(seconds=15)
"""A run that began this recently is waited for: its first pass is on its way."""


def look() -> bool:
    """Run what is not at work. True when all are. Raises when Prefect or the database is away."""
    for name, patience in PATIENCE.items():
        if attendance.at_work(name, patience):
            continue
        with client() as prefect:
            try:
                deployment = prefect.read_deployment_by_name(f"{name}/shift")
            except ObjectNotFound:  # not deployed yet
                return False
            if not deployment.paused and not _is_on_its_way(prefect, deployment):
                log.info("No shift of %s is at work: one is run at once", name)
                prefect.create_flow_run_from_deployment(deployment.id)
        return False
    return True


def _is_on_its_way(prefect: SyncPrefectClient, deployment: DeploymentResponse) -> bool:
    open_states = [StateType.SCHEDULED, StateType.PENDING, StateType.RUNNING]
    runs = prefect.read_flow_runs(
        flow_run_filter=FlowRunFilter(
            deployment_id=FlowRunFilterDeploymentId(any_=[deployment.id]),
            state=FlowRunFilterState(type=FlowRunFilterStateType(any_=open_states)),
            expected_start_time=FlowRunFilterExpectedStartTime(
                after_=datetime.now(UTC) - STARTING, before_=datetime.now(UTC) + SOON
            ),
        )
    )
    return any(not _has_had_its_time(run) for run in runs)


def _has_had_its_time(run: FlowRun) -> bool:
    """A run that is Running for some time, and makes no pass, is no reason to wait: its process may be gone."""
    state = run.state
    return state is not None and state.is_running() and datetime.now(UTC) - state.timestamp > FIRST_PASS_WITHIN
