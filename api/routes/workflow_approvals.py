"""Approvals of a realm's runs, as administrators see them. They are decided in self-service (my_approvals)."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query

from api.auth import Caller, permitted
from api.bodies import StrictRoute
from api.paging import Page, PageQuery, page_of
from api.shapes import Answer, At
from api.transaction import Transaction
from db.statements import reads_runs as reads

router = APIRouter(tags=["runs"], route_class=StrictRoute)

ApprovalState = Literal["pending", "approved", "rejected", "expired", "cancelled"]


class Approval(Answer):
    """A decision that a run waits or waited for."""

    id: str
    run_id: str
    workflow_id: str
    step_index: int
    step_id: str
    subject_id: str
    organization_id: str | None
    approvers: list[str]
    state: ApprovalState
    expires_at: At
    created_at: At
    decided_by: str | None
    ended_at: At | None
    comment: str | None


class ApprovalsQuery(PageQuery):
    state: ApprovalState | None = None


@router.get("/workflow-approvals")
def list_approvals(
    caller: Annotated[Caller, permitted("realm.workflows.read")],
    connection: Transaction,
    query: Annotated[ApprovalsQuery, Query()],
) -> Page[Approval]:
    """The approvals of the realm, the newest first."""
    return page_of(
        Approval,
        query,
        (caller.realm_id, "workflow-approvals"),
        lambda after, limit: reads.approvals_page(connection, caller.realm_id, after, limit, state=query.state),
    )
