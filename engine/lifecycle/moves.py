"""Moves: what a decision makes of a run, and the rows that record it.

There is one way to save a run (`Move.row`), and every move brings its audit rows with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from db.statements.bulk import insert_into, update_rows
from db.statements.runs import SAVE_RUN
from db.tables import StepAttempt, table
from engine.core import ids
from engine.core.ledger import Row, Write
from engine.core.trail import audit
from engine.lifecycle.facts import AttemptFact, RunFact, SubscriptionFact
from engine.lifecycle.plans import PlannedStep
from engine.lifecycle.states import RUN

INSERT_ATTEMPT = Write(
    50,
    insert_into(
        table(StepAttempt),
        "realm_id",
        "run_id",
        "step_index",
        "attempt",
        "id",
        "step_id",
        "step_type",
        "state",
        "idempotency_key",
        "input",
        "input_version",
        "result",
        "error_category",
        "error_message",
        "max_attempts",
        "backoff_ms",
        "compensation_strategy",
        "compensation_state",
        "started_at",
        "finished_at",
    ),
)
_ATTEMPT_KEY = ["realm_id", "run_id", "step_index", "attempt"]
FINISH_ATTEMPT = Write(
    51,
    update_rows(
        table(StepAttempt),
        _ATTEMPT_KEY,
        [
            "state",
            "result",
            "error_category",
            "error_message",
            "compensation_strategy",
            "compensation_state",
            "finished_at",
        ],
        "workflow_step_attempts.state = 'started'",
        name="finish attempt",
    ),
)
SAVE_COMPENSATION = Write(
    52,
    update_rows(
        table(StepAttempt),
        _ATTEMPT_KEY,
        ["compensation_state", "compensation_attempts", "compensation_started_at", "compensation_result"],
        "workflow_step_attempts.state = 'succeeded' AND workflow_step_attempts.compensation_state = 'pending'",
        name="save compensation",
    ),
)
RUN_WRITE = Write(60, SAVE_RUN)

MESSAGE_LIMIT = 500
"""Characters of an error message that are kept."""


def storable(message: str) -> str:
    """An error text that any column takes: no NUL, no lone surrogate, not long (FAULTS.md, 13)."""
    clean = message.replace("\x00", "").encode("utf-8", "replace").decode()
    return clean if len(clean) <= MESSAGE_LIMIT else clean[: MESSAGE_LIMIT - 1] + "…"


@dataclass(frozen=True, slots=True)
class PlannedCall:
    """A call to be made once the move is committed."""

    action: str
    attempt_id: str
    attempt: int
    step_id: str
    step_index: int
    subscription: SubscriptionFact
    deadline: float


@dataclass(slots=True)
class Move:
    """A run after a decision. `keep`: the worker goes on with it under the same lease; else it is due at `due_at`, if ever."""

    run: RunFact
    state: str
    step_index: int
    keep: bool = False
    due_at: datetime | None = None
    paused: bool = False
    error_category: str | None = None
    last_error: str | None = None
    context: dict[str, Any] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)
    call: PlannedCall | None = None
    failed_attempt: str | None = None
    """Category of the attempt that failed with this move, for what operators see."""
    decided_at: datetime | None = None
    """The database's clock when this was decided: what a call is dated by."""

    @property
    def finished(self) -> bool:
        """Whether the run has come to its end."""
        return self.state in RUN.terminal

    def row(self, owner: str) -> Row:
        """The one way to save a run: by its fence and its owner."""
        return RUN_WRITE(
            realm_id=self.run.realm_id,
            id=self.run.id,
            fence=self.run.fence,
            owner=owner,
            state=self.state,
            step_index=self.step_index,
            context=self.context,
            error_category=self.error_category,
            last_error=None if self.last_error is None else storable(self.last_error),
            due_at=None if self.keep or self.finished else self.due_at,
            keep=self.keep and not self.finished,
            finished=self.finished,
            paused=self.paused,
            interruptions=0,
        )


def stay(run: RunFact, **changes: Any) -> Move:
    """A move that leaves the run where it is, but for `changes`."""
    return Move(
        run,
        **{
            "state": run.state,
            "step_index": run.step_index,
            "error_category": run.error_category,
            "last_error": run.last_error,
            "context": run.context,
            **changes,
        },
    )


def attempt_number(run: RunFact) -> int:
    """The number of the attempt that a decision of now belongs to."""
    if run.attempt is None:
        return 1
    return run.attempt.attempt + (run.attempt.state != "started")


def started_attempt(run: RunFact, planned: PlannedStep, inputs: Mapping[str, Any], now: datetime) -> tuple[str, Row]:
    """The id and the row of an attempt that is begun and not over."""
    row = _attempt(run, planned, inputs, now, state="started", finished_at=None)
    return str(row.values["id"]), row


def finished_attempt(
    run: RunFact, planned: PlannedStep, inputs: Mapping[str, Any], now: datetime, **outcome: Any
) -> Row:
    """The row of an attempt that is over: of the one begun before, or of one that began and ended in this decision."""
    if run.attempt is not None and run.attempt.state == "started":
        return end_attempt(run, run.attempt, now, **outcome)
    return _attempt(run, planned, inputs, now, finished_at=now, **outcome)


_NOTHING: dict[str, Any] = {
    "result": None,
    "error_category": None,
    "error_message": None,
    "compensation_strategy": "none",
    "compensation_state": "not_needed",
}


def _attempt(run: RunFact, planned: PlannedStep, inputs: Mapping[str, Any], now: datetime, **outcome: Any) -> Row:
    sha256 = run.plan.sha256 if run.plan is not None else ""
    values = {
        "realm_id": run.realm_id,
        "run_id": run.id,
        "step_index": run.step_index,
        "attempt": attempt_number(run),
        "id": ids.new(ids.Prefix.ATTEMPT),
        "step_id": planned.step.id,
        "step_type": planned.type.name,
        "idempotency_key": run.step_key(planned.step.id),
        "input": inputs,
        "input_version": f"r{run.revision}:{sha256[:16]}:i{run.input_version}",
        "max_attempts": planned.max_attempts,
        "backoff_ms": int(planned.backoff.total_seconds() * 1000),
        "started_at": now,
        **_NOTHING,
        **outcome,
    }
    return Row(INSERT_ATTEMPT, values)


def end_attempt(run: RunFact, attempt: AttemptFact, now: datetime, **outcome: Any) -> Row:
    """The row of an attempt that was begun before and is over now."""
    values = {
        "realm_id": run.realm_id,
        "run_id": run.id,
        "step_index": attempt.step_index,
        "attempt": attempt.attempt,
        "finished_at": now,
        **_NOTHING,
        **outcome,
    }
    return Row(FINISH_ATTEMPT, values)


def run_audit(run: RunFact, type_: str, **details: Any) -> Row:
    """An audit row about a run, with its workflow and revision."""
    about = {"workflow_id": run.workflow_id, "revision": run.revision, "subject_id": run.subject_id}
    return audit(run.cause, f"workflow.run.{type_}", ("run", run.id), {**about, **details}, category="workflow")


def step_audit(run: RunFact, type_: str, step_id: str, **details: Any) -> Row:
    """An audit row about a step of a run."""
    about = {"workflow_id": run.workflow_id, "step_id": step_id}
    return audit(run.cause, f"workflow.step.{type_}", ("run", run.id), {**about, **details}, category="workflow")
