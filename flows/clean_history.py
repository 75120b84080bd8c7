"""Deployment clean-history/daily: what retention no longer keeps, deleted in short transactions."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any

from prefect import flow
from prefect.client.schemas.objects import State

from flows.hosting import bury_cancelled, bury_crashed, host_shift, slot_name
from flows.shift import Terms
from tasks import clean


@flow(
    name="clean-history",
    flow_run_name=slot_name,
    retries=0,
    persist_result=False,
    on_crashed=[bury_crashed],
    on_cancellation=[bury_cancelled],
)
def clean_history(keep_days: int = 180, cap_hours: float = 6) -> State[Any]:
    """Delete finished runs with their attempts and approvals after `keep_days` (the source: 180), and old rows of ours."""
    terms = Terms(length=0, cap=cap_hours * 3600)
    return host_shift("clean-history", partial(clean.open_passes, timedelta(days=keep_days)), terms, interval=0)
