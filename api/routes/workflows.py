"""Workflows: a name, an owner, a line of revisions; and runs started by hand."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Path, Query, Response
from pydantic import Field

from api.auth import Caller, permitted
from api.bodies import StrictRoute
from api.paging import Page, PageQuery, page_of
from api.routes.workflow_runs import Run, shown_run
from api.shapes import Answer, At, Body, IdempotencyKey, Name, unset
from api.transaction import Transaction
from db.statements import reads_workflows as reads
from engine.core.errors import Refused
from engine.core.ids import OrganizationId, UserId, WorkflowId
from engine.lifecycle import runs, workflows
from engine.lifecycle.definition import canonical, parse
from engine.lifecycle.references import check_references

router = APIRouter(tags=["workflows"], route_class=StrictRoute)

WorkflowPath = Annotated[WorkflowId, Path(description="The workflow.")]
Description = Annotated[str, Field(max_length=500)]


class Workflow(Answer):
    """A workflow. `publisher_id` answers for the runs that start now."""

    id: str
    name: str
    description: str | None
    owner_id: str | None
    state: Literal["draft", "active", "disabled"]
    requires_approval: bool
    last_revision: int
    published_revision: int | None
    publisher_id: str | None
    first_published_at: At | None
    plugin_id: str | None
    created_at: At
    updated_at: At


class NewWorkflow(Body):
    """`requires_approval`: its revisions are published only when approved. The realm's policy may demand it anyway."""

    name: Name
    description: Description | None = None
    owner_id: UserId | None = None
    requires_approval: bool | None = None


class WorkflowChanges(Body):
    """What is left out stays."""

    name: Name = unset()
    description: Description | None = None
    owner_id: UserId | None = None


class DefinitionBody(Body):
    """A definition as `definition.v1.json` has it."""

    definition: Annotated[Any, Field(json_schema_extra={"type": "object"})]


class Validity(Answer):
    """The definition can be staged. The hash is over its canonical bytes (RFC 8785)."""

    valid: Literal[True] = True
    definition_hash: str


class ManualStart(Body):
    """Whom the run is about, and the organization that steps without one of their own act in."""

    subject_id: UserId
    organization_id: OrganizationId | None = None


class WorkflowsQuery(PageQuery):
    state: Literal["draft", "active", "disabled"] | None = None


@router.get("/workflows")
def list_workflows(
    caller: Annotated[Caller, permitted("realm.workflows.read")],
    connection: Transaction,
    query: Annotated[WorkflowsQuery, Query()],
) -> Page[Workflow]:
    """The workflows of the realm, the newest first."""
    return page_of(
        Workflow,
        query,
        (caller.realm_id, "workflows"),
        lambda after, limit: reads.workflows_page(connection, caller.realm_id, after, limit, state=query.state),
    )


@router.post("/workflows", status_code=201)
def create_workflow(
    caller: Annotated[Caller, permitted("realm.workflows.write")], connection: Transaction, body: NewWorkflow
) -> Workflow:
    """Make a workflow, without a revision yet."""
    workflow_id = workflows.create(connection, caller.cause, **body.model_dump())
    return shown_workflow(connection, caller, workflow_id)


@router.post("/workflows/validate")
def validate_definition(
    caller: Annotated[Caller, permitted("realm.workflows.write")], connection: Transaction, body: DefinitionBody
) -> Validity:
    """Check a definition and all it refers to, and store nothing. A 422 tells every fault."""
    definition = parse(body.definition)
    check_references(connection, caller.realm_id, definition)
    return Validity(definition_hash=canonical(definition).sha256)


@router.get("/workflows/{workflow_id}")
def get_workflow(
    caller: Annotated[Caller, permitted("realm.workflows.read")], connection: Transaction, workflow_id: WorkflowPath
) -> Workflow:
    """One workflow."""
    return shown_workflow(connection, caller, workflow_id)


@router.patch("/workflows/{workflow_id}")
def change_workflow(
    caller: Annotated[Caller, permitted("realm.workflows.write")],
    connection: Transaction,
    workflow_id: WorkflowPath,
    body: WorkflowChanges,
) -> Workflow:
    """Change name, description or owner."""
    workflows.update(connection, caller.cause, workflow_id, **body.model_dump(exclude_unset=True))
    return shown_workflow(connection, caller, workflow_id)


@router.post(
    "/workflows/{workflow_id}/runs", status_code=201, responses={200: {"model": Run, "description": "This key's run"}}
)
def start_run(
    caller: Annotated[Caller, permitted("realm.workflows.run", checked_by_verb=True)],
    connection: Transaction,
    workflow_id: WorkflowPath,
    body: ManualStart,
    response: Response,
    idempotency_key: Annotated[IdempotencyKey | None, Header(alias="Idempotency-Key")] = None,
) -> Run:
    """Start a run by hand: 201. The same Idempotency-Key for the same subject gives the run it gave before: 200."""
    run_id, new = runs.start_manual(
        connection, caller.cause, workflow_id, body.subject_id, body.organization_id, idempotency_key
    )
    response.status_code = 201 if new else 200
    return shown_run(connection, caller, run_id)


def shown_workflow(connection: Transaction, caller: Caller, workflow_id: str) -> Workflow:
    """A workflow of the caller's realm. Raises Refused("not_found")."""
    row = reads.workflow(connection, caller.realm_id, workflow_id)
    if row is None:
        raise Refused("not_found", "this workflow does not exist")
    return Workflow.model_validate(row)
