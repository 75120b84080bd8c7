"""Revisions of a workflow: immutable definitions, one of them published."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query
from pydantic import BeforeValidator, Field

from api.auth import Caller, permitted
from api.bodies import StrictRoute
from api.paging import INT4, Page, PageQuery, page_of
from api.routes.workflows import DefinitionBody, WorkflowPath
from api.shapes import Answer, At, Whole
from api.transaction import Transaction
from db.statements import reads_workflows as reads
from engine.core.errors import Refused
from engine.lifecycle import revisions
from engine.lifecycle.definition import parse

router = APIRouter(tags=["workflows"], route_class=StrictRoute)

Number = Annotated[Whole, Path(description="The revision's number, from 1.")]


class RevisionSummary(Answer):
    """A revision without its definition."""

    id: str
    number: int
    status: Literal["draft", "approved", "rejected", "published", "superseded"]
    definition_hash: str
    author_id: str
    created_at: At
    decided_by: str | None
    decided_at: At | None
    published_by: str | None
    published_at: At | None


class Revision(RevisionSummary):
    """A revision. Its definition is what the author gave; the hash is over its canonical bytes (RFC 8785)."""

    definition: Annotated[dict[str, Any], BeforeValidator(json.loads), Field(description="As definition.v1.json.")]


@router.get("/workflows/{workflow_id}/revisions")
def list_revisions(
    caller: Annotated[Caller, permitted("realm.workflows.read")],
    connection: Transaction,
    workflow_id: WorkflowPath,
    query: Annotated[PageQuery, Query()],
) -> Page[RevisionSummary]:
    """The revisions of a workflow, the newest first."""
    if reads.workflow(connection, caller.realm_id, workflow_id) is None:
        raise Refused("not_found", "this workflow does not exist")
    return page_of(
        RevisionSummary,
        query,
        (caller.realm_id, "revisions", workflow_id),
        lambda after, limit: reads.revisions_page(connection, caller.realm_id, workflow_id, after, limit),
        "number",
        most=INT4,
    )


@router.post("/workflows/{workflow_id}/revisions", status_code=201)
def stage_revision(
    caller: Annotated[Caller, permitted("realm.workflows.write")],
    connection: Transaction,
    workflow_id: WorkflowPath,
    body: DefinitionBody,
) -> Revision:
    """Stage a definition as the next revision."""
    number = revisions.add(connection, caller.cause, workflow_id, parse(body.definition))
    return _shown(connection, caller, workflow_id, number)


@router.get("/workflows/{workflow_id}/revisions/{number}")
def get_revision(
    caller: Annotated[Caller, permitted("realm.workflows.read")],
    connection: Transaction,
    workflow_id: WorkflowPath,
    number: Number,
) -> Revision:
    """One revision, with its definition."""
    return _shown(connection, caller, workflow_id, number)


@router.post("/workflows/{workflow_id}/revisions/{number}/approve")
def approve_revision(
    caller: Annotated[Caller, permitted("realm.workflows.publish")],
    connection: Transaction,
    workflow_id: WorkflowPath,
    number: Number,
) -> Revision:
    """Approve a draft. Its author cannot: 403."""
    revisions.decide(connection, caller.cause, workflow_id, number, "approve")
    return _shown(connection, caller, workflow_id, number)


@router.post("/workflows/{workflow_id}/revisions/{number}/reject")
def reject_revision(
    caller: Annotated[Caller, permitted("realm.workflows.publish")],
    connection: Transaction,
    workflow_id: WorkflowPath,
    number: Number,
) -> Revision:
    """Reject a draft or an approved revision, for good. Its author cannot: 403."""
    revisions.decide(connection, caller.cause, workflow_id, number, "reject")
    return _shown(connection, caller, workflow_id, number)


@router.post("/workflows/{workflow_id}/revisions/{number}/publish")
def publish_revision(
    caller: Annotated[Caller, permitted("realm.workflows.publish", checked_by_verb=True)],
    connection: Transaction,
    workflow_id: WorkflowPath,
    number: Number,
) -> Revision:
    """Publish a revision: the caller answers for every run that starts from now on, and must be able to do each step by
    hand."""
    revisions.publish(connection, caller.cause, workflow_id, number)
    return _shown(connection, caller, workflow_id, number)


def _shown(connection: Transaction, caller: Caller, workflow_id: str, number: int) -> Revision:
    row = reads.revision(connection, caller.realm_id, workflow_id, number)
    if row is None:
        raise Refused("not_found", "this revision does not exist")
    return Revision.model_validate(row)
