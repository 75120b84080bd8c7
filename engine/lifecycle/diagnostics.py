"""How a workflow fares, from its last runs: counts and durations, no inputs, results or subjects (source: "Diagnostics")."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from sqlalchemy import Connection, Row

from db.statements import diagnostics as statements
from db.statements.reads_workflows import workflow
from engine.core.errors import Refused

LAST_RUNS = 500
LAST_ATTEMPTS = 1000
LAST_FAILURES = 20
"""Failures that are told one by one."""

DEGRADED_ABOVE = 0.1
"""The part of the attempts that may fail."""

Health = Literal["unknown", "healthy", "degraded", "attention_required"]


@dataclass(frozen=True, slots=True)
class Failure:
    """An attempt that failed."""

    run_id: str
    step_id: str
    error_category: str
    failed_at: datetime


@dataclass(frozen=True, slots=True)
class DueRun:
    """A run that a worker has not taken yet, and since when it might have been."""

    id: str
    due_at: datetime


@dataclass(frozen=True, slots=True)
class Diagnostics:
    """Of the last 500 runs and the last 1,000 of their attempts; approvals and the due run are those of this moment."""

    health: Health
    runs: int
    runs_by_state: dict[str, int]
    attempts: int
    failures: int
    failure_categories: dict[str, int]
    last_failures: list[Failure]
    compensation_failures: int
    p50_seconds: float | None
    """Of the runs that have finished; None while none has."""
    p95_seconds: float | None
    pending_approvals: int
    oldest_due_run: DueRun | None


def diagnose(connection: Connection, realm_id: str, workflow_id: str) -> Diagnostics:
    """How the workflow fares. Raises Refused("not_found")."""
    if workflow(connection, realm_id, workflow_id) is None:
        raise Refused("not_found", "this workflow does not exist")
    runs = statements.last_runs(connection, realm_id, workflow_id, LAST_RUNS)
    attempts = statements.last_attempts(connection, realm_id, workflow_id, LAST_RUNS, LAST_ATTEMPTS)
    stuck = statements.compensation_failures(connection, realm_id, workflow_id, LAST_RUNS)
    due = statements.oldest_due_run(connection, realm_id, workflow_id)
    failed = [row for row in attempts if row.state == "failed"]
    seconds = sorted(row.seconds for row in runs if row.seconds is not None)
    return Diagnostics(
        health=health(len(attempts), len(failed), stuck),
        runs=len(runs),
        runs_by_state=_counted([row.state for row in runs]),
        attempts=len(attempts),
        failures=len(failed),
        failure_categories=_counted([row.error_category for row in failed]),
        last_failures=[_failure(row) for row in failed[:LAST_FAILURES]],
        compensation_failures=stuck,
        p50_seconds=percentile(seconds, 0.5),
        p95_seconds=percentile(seconds, 0.95),
        pending_approvals=statements.pending_approvals(connection, realm_id, workflow_id),
        oldest_due_run=None if due is None else DueRun(due.id, due.due_at),
    )


def health(attempts: int, failures: int, compensation_failures: int) -> Health:
    """A compensation that failed waits for a person, whatever else goes well; without an attempt nothing is known."""
    if compensation_failures:
        return "attention_required"
    if not attempts:
        return "unknown"
    return "degraded" if failures > attempts * DEGRADED_ABOVE else "healthy"


def percentile(ordered: Sequence[float], part: float) -> float | None:
    """The value that `part` of the values do not exceed: one of them, none in between. None of nothing."""
    if not ordered:
        return None
    return ordered[math.ceil(part * len(ordered)) - 1]


def _counted(words: Sequence[str]) -> dict[str, int]:
    """The most frequent first."""
    return dict(Counter(words).most_common())


def _failure(row: Row[Any]) -> Failure:
    return Failure(row.run_id, row.step_id, row.error_category, row.finished_at)
