"""What the database says about the engine at the moment, for Prometheus. Read when somebody asks, and once in a few seconds at
most however many ask."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from datetime import timedelta

import anyio
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from sqlalchemy.exc import SQLAlchemyError
from starlette.concurrency import run_in_threadpool

from api.parts import Parts
from db.errors import DatabaseUnavailable
from db.session import Database
from db.statements import metrics as statements
from engine.core.faults import message_of

log = logging.getLogger("api")

FRESH = 5.0
"""Seconds that a reading stands for. One that failed stands as long: a database that is away is not asked by every scrape."""

PATIENCE = timedelta(seconds=2)
"""How long a statement may take. A scrape that is late is thrown away by whoever asked."""

TURN_WITHIN = 3.0
"""Seconds that a scrape waits for a connection at most: it is one caller among many."""

MEANINGS: Mapping[str, str] = {
    "runs_due": "Runs that a worker may take now.",
    "runs_oldest_due_seconds": "How long the first of them has been due.",
    "leases_expired": "Runs whose worker is gone, and that no other has taken over yet.",
    "approvals_pending": "Decisions that are waited for.",
    "outbox_waiting": "Events that are not dispatched yet.",
    "outbox_oldest_waiting_seconds": "How long the first of them has been due.",
    "outbox_set_aside": "Events that failed ten times and wait for a person.",
    "messages_queued": "Notices that have not been sent.",
    "schedules_lateness_seconds": "How long ago the earliest slot should have been fired that has not been.",
    "slots_being_filled": "Slots whose population is not covered yet.",
    "subscriptions_disabled": "Webhook subscriptions that are disabled.",
}
"""Figure -> what it means. Each is of all realms together."""

UNFINISHED = ("pending", "running", "waiting", "awaiting_approval", "compensating")


class Figures:
    """The latest reading."""

    def __init__(self) -> None:
        self._one_at_a_time = anyio.Lock()
        self._families: list[Metric] = []
        self._of: Database | None = None
        self._stale_at = 0.0

    async def read(self, parts: Parts) -> list[Metric]:
        """The figures, or that they could not be read. Raises nothing for a database that is away."""
        async with self._one_at_a_time:
            if self._of is not parts.database or time.monotonic() >= self._stale_at:
                self._families = await _reading(parts)
                self._of, self._stale_at = parts.database, time.monotonic() + FRESH
            return self._families


async def _reading(parts: Parts) -> list[Metric]:
    try:
        with anyio.fail_after(TURN_WITHIN):
            await parts.turns.acquire()
        try:
            return [_up(True), *await run_in_threadpool(_read, parts.database)]
        finally:
            parts.turns.release()
    except (SQLAlchemyError, DatabaseUnavailable, TimeoutError) as error:
        log.warning("the figures of the database could not be read: %s", message_of(error))
        return [_up(False)]


def _read(database: Database) -> list[Metric]:
    with database.begin() as connection:
        statements.be_patient_for(connection, PATIENCE)
        row = statements.figures(connection)
        unfinished = {each.state: each.runs for each in statements.unfinished_runs(connection)}
    families: list[Metric] = [
        GaugeMetricFamily(f"tenure_{name}", meaning, getattr(row, name)) for name, meaning in MEANINGS.items()
    ]
    by_state = GaugeMetricFamily("tenure_runs_unfinished", "Runs that have not ended, by state.", labels=["state"])
    for state in UNFINISHED:
        by_state.add_metric([state], unfinished.get(state, 0))
    return [*families, by_state]


def _up(up: bool) -> Metric:
    return GaugeMetricFamily("tenure_database_up", "Whether the figures of the database could be read.", float(up))
