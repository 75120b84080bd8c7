"""What becomes of a workflow: rolled back, disabled, enabled, deleted."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from pydantic import Field

from api.auth import Caller, permitted
from api.bodies import StrictRoute
from api.routes.workflows import Workflow, WorkflowPath, shown_workflow
from api.shapes import Body
from api.transaction import Transaction
from engine.lifecycle import activation, deletion, revisions

router = APIRouter(tags=["workflows"], route_class=StrictRoute)


class Rollback(Body):
    """The number of a revision that was published before."""

    revision: Annotated[int, Field(ge=1, le=999_999_999, examples=[1])]


@router.post("/workflows/{workflow_id}/rollback")
def roll_back_workflow(
    caller: Annotated[Caller, permitted("realm.workflows.publish", checked_by_verb=True)],
    connection: Transaction,
    workflow_id: WorkflowPath,
    body: Rollback,
) -> Workflow:
    """Publish a superseded revision again: the caller answers for every run that starts from now on, and must be able to do
    each step by hand."""
    revisions.roll_back(connection, caller.cause, workflow_id, body.revision)
    return shown_workflow(connection, caller, workflow_id)


@router.post("/workflows/{workflow_id}/disable")
def disable_workflow(
    caller: Annotated[Caller, permitted("realm.workflows.publish")], connection: Transaction, workflow_id: WorkflowPath
) -> Workflow:
    """Let nothing fire and the runs in flight pause; compensation and cancellation go on. This raises a security alert."""
    activation.disable(connection, caller.cause, workflow_id)
    return shown_workflow(connection, caller, workflow_id)


@router.post("/workflows/{workflow_id}/enable")
def enable_workflow(
    caller: Annotated[Caller, permitted("realm.workflows.publish", checked_by_verb=True)],
    connection: Transaction,
    workflow_id: WorkflowPath,
) -> Workflow:
    """Let it fire again and its runs go on where they were. The caller must be able to do each step by hand; the publisher
    stays the one who answers for it."""
    activation.enable(connection, caller.cause, workflow_id)
    return shown_workflow(connection, caller, workflow_id)


@router.delete("/workflows/{workflow_id}", status_code=204)
def delete_workflow(
    caller: Annotated[Caller, permitted("realm.workflows.write")], connection: Transaction, workflow_id: WorkflowPath
) -> None:
    """Delete a workflow that has no unfinished run; its finished runs stay to be read. One that was ever published needs
    `realm.workflows.publish` as well, and deleting an active one raises a security alert."""
    deletion.delete(connection, caller.cause, workflow_id)
