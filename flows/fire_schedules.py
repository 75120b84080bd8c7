"""Deployment fire-schedules/shift: slots that are due, a pass a minute, 15 minutes a shift, relieved by the next."""

from __future__ import annotations

from functools import partial
from typing import Any

from prefect import flow
from prefect.client.schemas.objects import State

from flows.hosting import bury_cancelled, bury_crashed, host_shift, slot_name
from flows.shift import Terms
from tasks import fire


@flow(
    name="fire-schedules",
    flow_run_name=slot_name,
    retries=0,
    persist_result=False,
    on_crashed=[bury_crashed],
    on_cancellation=[bury_cancelled],
)
def fire_schedules(shift_seconds: float = 900, pass_seconds: float = 60, cap_hours: float = 6) -> State[Any]:
    """Start runs for every slot that is due. A slot that was missed altogether is not caught up."""
    terms = Terms(length=shift_seconds, cap=cap_hours * 3600)
    return host_shift("fire-schedules", partial(fire.open_passes, pass_seconds), terms, interval=pass_seconds)
