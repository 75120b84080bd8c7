"""Runs: what they did, attempt by attempt; and their cancellation."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query

from api.auth import Caller, permitted
from api.bodies import StrictRoute
from api.paging import Page, PageQuery, page_of
from api.routes.workflow_approvals import Approval
from api.shapes import Answer, At, Document, Moment
from api.transaction import Transaction
from db.statements import reads_runs as reads
from engine.core.errors import Refused
from engine.core.ids import RunId, UserId, WorkflowId
from engine.lifecycle import runs

router = APIRouter(tags=["runs"], route_class=StrictRoute)

RunPath = Annotated[RunId, Path(description="The run.")]
RunState = Literal[
    "pending",
    "running",
    "waiting",
    "awaiting_approval",
    "compensating",
    "succeeded",
    "failed",
    "compensated",
    "compensation_failed",
    "cancelled",
]


class Run(Answer):
    """A run. `due_at` is when a worker may take it next; null while it waits for a person, and when it is finished."""

    id: str
    workflow_id: str
    revision: int
    publisher_id: str
    starter_id: str | None
    subject_id: str
    organization_id: str | None
    trigger_type: Literal["event", "schedule", "manual"]
    trigger_key: str
    event_type: str | None
    event_id: str | None
    input: Document
    input_version: int
    depth: int
    state: RunState
    step_index: int
    error_category: str | None
    last_error: str | None
    paused: bool
    cancel_requested_at: At | None
    created_at: At
    finished_at: At | None
    due_at: At | None


class StepAttempt(Answer):
    """One attempt of one step, and what became of its compensation."""

    id: str
    step_index: int
    step_id: str
    step_type: str
    attempt: int
    state: Literal["started", "succeeded", "failed"]
    idempotency_key: str
    input: Document
    input_version: str
    result: Document | None
    error_category: str | None
    error_message: str | None
    max_attempts: int
    backoff_ms: int
    compensation_strategy: Literal["none", "undo", "notify_endpoint", "impossible"]
    compensation_state: Literal["pending", "done", "not_needed", "impossible", "failed"]
    compensation_attempts: int
    compensation_result: Document | None
    started_at: At
    finished_at: At | None


class RunDetail(Run):
    """A run with all its attempts and approvals, in the order of its steps."""

    attempts: list[StepAttempt]
    approvals: list[Approval]


class RunsQuery(PageQuery):
    workflow_id: WorkflowId | None = None
    subject_id: UserId | None = None
    state: RunState | None = None
    trigger: Literal["event", "schedule", "manual"] | None = None
    since: Moment | None = None


@router.get("/workflow-runs")
def list_runs(
    caller: Annotated[Caller, permitted("realm.workflows.read")],
    connection: Transaction,
    query: Annotated[RunsQuery, Query()],
) -> Page[Run]:
    """The runs of the realm, the newest first."""
    filters = query.model_dump(exclude={"limit", "cursor"})
    return page_of(
        Run,
        query,
        (caller.realm_id, "workflow-runs"),
        lambda after, limit: reads.runs_page(connection, caller.realm_id, after, limit, **filters),
    )


@router.get("/workflow-runs/{run_id}")
def get_run(
    caller: Annotated[Caller, permitted("realm.workflows.read")], connection: Transaction, run_id: RunPath
) -> RunDetail:
    """One run, with its attempts and approvals."""
    run = shown_run(connection, caller, run_id)
    attempts = [StepAttempt.model_validate(row) for row in reads.attempts_of(connection, caller.realm_id, run_id)]
    approvals = [Approval.model_validate(row) for row in reads.approvals_of(connection, caller.realm_id, run_id)]
    return RunDetail(**dict(run), attempts=attempts, approvals=approvals)


@router.post("/workflow-runs/{run_id}/cancel", status_code=202)
def cancel_run(
    caller: Annotated[Caller, permitted("realm.workflows.run")], connection: Transaction, run_id: RunPath
) -> Run:
    """Ask for a run to be cancelled: it undoes what it did, newest first. 409 once it has finished or is undoing anyway."""
    runs.cancel(connection, caller.cause, run_id)
    return shown_run(connection, caller, run_id)


def shown_run(connection: Transaction, caller: Caller, run_id: str) -> Run:
    """A run of the caller's realm. Raises Refused("not_found")."""
    row = reads.run(connection, caller.realm_id, run_id)
    if row is None:
        raise Refused("not_found", "this run does not exist")
    return Run.model_validate(row)
