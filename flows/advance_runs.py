"""Deployment advance-runs/shift: the worker's passes, 5 minutes a shift, relieved by the next."""

from __future__ import annotations

from typing import Any

from prefect import flow
from prefect.client.schemas.objects import State

from flows.hosting import bury_cancelled, bury_crashed, host_shift, slot_name
from flows.shift import Terms
from tasks import advance, attendance


@flow(
    name="advance-runs",
    flow_run_name=slot_name,
    retries=0,
    persist_result=False,
    on_crashed=[bury_crashed],
    on_cancellation=[bury_cancelled],
)
def advance_runs(shift_seconds: float = 300, cap_hours: float = 6) -> State[Any]:
    """Claim and advance due runs, dispatch the outbox, deliver mail and sweep, until a younger shift takes over."""
    terms = Terms(length=shift_seconds, cap=cap_hours * 3600)
    return host_shift("advance-runs", advance.open_passes, terms, interval=attendance.poll_interval().total_seconds())
