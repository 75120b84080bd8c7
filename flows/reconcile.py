"""Prefect's open runs against our own rows: a run that Prefect believes to be running, and that is not, is given its end.

Needed because the timers of automations die with the server: after a power loss nobody else would ever end those runs. Two
looks in a row must agree before anything is done: right after an outage of the database every live shift looks silent.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from typing import Any

from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.filters import (
    FlowFilter,
    FlowFilterName,
    FlowRunFilter,
    FlowRunFilterDeploymentId,
    FlowRunFilterState,
    FlowRunFilterStateType,
)
from prefect.client.schemas.objects import FlowRun, State, StateType
from prefect.states import Cancelled, Completed, Crashed

from engine.core.shifts import SILENT_AFTER, Shift, Standing
from flows.server import FLOWS, client
from tasks import attendance

log = logging.getLogger("engine.shifts")

OPEN_STATES = [StateType.PENDING, StateType.RUNNING, StateType.CANCELLING]


class Reconciliation:
    """Looks from time to time. Remembers from one look to the next what it suspects."""

    def __init__(self) -> None:
        self._suspects: frozenset[str] = frozenset()

    def look(self) -> int:
        """End what this look and the last one found dead. Returns how many. Raises when Prefect or the database is away."""
        with client() as prefect:
            runs = _open_runs(prefect)
            ends = _ends(runs, attendance.standings([str(run.id) for run in runs]))
            silent = {shift.id: shift for shift in attendance.silent()}
            confirmed = self._suspects & (ends.keys() | silent.keys())
            for flow_run in runs:
                if str(flow_run.id) in confirmed:
                    _end_run(prefect, flow_run, ends[str(flow_run.id)])
            for shift_id in confirmed & silent.keys():
                _end_shift(silent[shift_id])
            self._suspects = frozenset((ends.keys() | silent.keys()) - confirmed)
            return len(confirmed)


def _open_runs(prefect: SyncPrefectClient) -> list[FlowRun]:
    return prefect.read_flow_runs(
        flow_filter=FlowFilter(name=FlowFilterName(any_=list(FLOWS))),
        flow_run_filter=FlowRunFilter(
            state=FlowRunFilterState(type=FlowRunFilterStateType(any_=OPEN_STATES)),
            deployment_id=FlowRunFilterDeploymentId(is_null_=False),
        ),
    )


def _ends(runs: list[FlowRun], standings: dict[str, Standing]) -> dict[str, State[Any]]:
    """The end that each run should have been given long ago, by its id."""
    return {str(run.id): end for run in runs if (end := _end(run, standings.get(str(run.id)))) is not None}


def _end(run: FlowRun, standing: Standing | None) -> State[Any] | None:
    match standing:
        case "alive":
            return None
        case None:
            return Crashed(message="It never began a shift.") if _is_old(run.state) else None
        case "silent" | "crashed" | "lost":
            return Crashed(message="Its shift fell silent.")
        case "cancelled":
            return Cancelled(message="Its shift was cancelled; the report of it was lost.")
        case _:
            return Completed(message=f"{standing}: its own report was lost.")


def _is_old(state: State[Any] | None) -> bool:
    """By the clocks of Prefect's server and ours: good enough to tell a run that is starting from one that never will."""
    since: datetime | None = state.timestamp if state is not None else None
    return since is not None and datetime.now(UTC) - since > timedelta(seconds=SILENT_AFTER.total_seconds())


def _end_run(prefect: SyncPrefectClient, run: FlowRun, state: State[Any]) -> None:
    log.warning("Flow run %s is ended as %s: %s", run.id, state.name, state.message)
    prefect.set_flow_run_state(run.id, state, force=True)
    attendance.bury(str(run.id), "lost")


def _end_shift(shift: Shift) -> None:
    attendance.bury_silent(shift)
