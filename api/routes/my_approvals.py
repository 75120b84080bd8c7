"""Self-service: what the caller is asked to decide. For everybody else, the subject above all, it does not exist."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query
from pydantic import Field

from api.auth import Caller, account
from api.bodies import StrictRoute
from api.paging import Page, PageQuery, page_of
from api.routes.workflow_approvals import Approval
from api.shapes import Answer, At, Body
from api.transaction import Transaction
from db.statements import reads_runs as reads
from engine.core.errors import Refused
from engine.core.ids import ApprovalId
from engine.lifecycle import approvals
from engine.lifecycle.approvals import COMMENT_LIMIT

router = APIRouter(prefix="/me", tags=["self-service"], route_class=StrictRoute)

ApprovalPath = Annotated[ApprovalId, Path(description="The approval.")]


class MyApproval(Answer):
    """What is asked of the caller: may this workflow go on for this subject?"""

    id: str
    workflow_id: str
    workflow_name: str
    step_id: str
    subject_id: str
    organization_id: str | None
    expires_at: At
    created_at: At


class Decision(Body):
    """Why. It is shown to administrators."""

    comment: Annotated[str, Field(max_length=COMMENT_LIMIT)] | None = None


@router.get("/workflow-approvals")
def list_my_approvals(
    caller: Annotated[Caller, account()], connection: Transaction, query: Annotated[PageQuery, Query()]
) -> Page[MyApproval]:
    """What the caller can decide now, the newest first."""
    return page_of(
        MyApproval,
        query,
        (caller.realm_id, "my-approvals", caller.id),
        lambda after, limit: reads.approvals_waiting_for(connection, caller.realm_id, caller.id, after, limit),
    )


@router.post("/workflow-approvals/{approval_id}/approve")
def approve(
    caller: Annotated[Caller, account()],
    connection: Transaction,
    approval_id: ApprovalPath,
    body: Decision | None = None,
) -> Approval:
    """Let the run go on."""
    return _decide(connection, caller, approval_id, "approve", body)


@router.post("/workflow-approvals/{approval_id}/reject")
def reject(
    caller: Annotated[Caller, account()],
    connection: Transaction,
    approval_id: ApprovalPath,
    body: Decision | None = None,
) -> Approval:
    """Stop the run; it undoes what it did."""
    return _decide(connection, caller, approval_id, "reject", body)


def _decide(
    connection: Transaction,
    caller: Caller,
    approval_id: str,
    verdict: Literal["approve", "reject"],
    body: Decision | None,
) -> Approval:
    approvals.decide(connection, caller.cause, approval_id, verdict, None if body is None else body.comment)
    row = reads.approval(connection, caller.realm_id, approval_id)
    if row is None:
        raise Refused("not_found", "this approval does not exist")
    return Approval.model_validate(row)
