"""How a workflow fares."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter

from api.auth import Caller, permitted
from api.bodies import StrictRoute
from api.routes.workflows import WorkflowPath
from api.shapes import Answer, At
from api.transaction import Transaction
from engine.lifecycle.diagnostics import diagnose

router = APIRouter(tags=["workflows"], route_class=StrictRoute)


class FailedAttempt(Answer):
    """An attempt of a step that failed."""

    run_id: str
    step_id: str
    error_category: str
    failed_at: At


class DueRun(Answer):
    """A run that waits for a worker."""

    id: str
    due_at: At


class Diagnostics(Answer):
    """The last 500 runs and the last 1,000 of their attempts in numbers; approvals and the due run are those of this moment.
    `degraded`: more than a tenth of the attempts failed. `attention_required`: something could not be taken back, and a person
    has to do it by hand."""

    health: Literal["unknown", "healthy", "degraded", "attention_required"]
    runs: int
    runs_by_state: dict[str, int]
    attempts: int
    failures: int
    failure_categories: dict[str, int]
    last_failures: list[FailedAttempt]
    compensation_failures: int
    p50_seconds: float | None
    p95_seconds: float | None
    pending_approvals: int
    oldest_due_run: DueRun | None


@router.get("/workflows/{workflow_id}/diagnostics")
def get_diagnostics(
    caller: Annotated[Caller, permitted("realm.workflows.read")], connection: Transaction, workflow_id: WorkflowPath
) -> Diagnostics:
    """How a workflow fares: what its last runs came to, how long they took, what failed, and what waits."""
    return Diagnostics.model_validate(diagnose(connection, caller.realm_id, workflow_id))
