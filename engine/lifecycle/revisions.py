"""Revisions: immutable definitions, staged, decided about, and one of them published at a time."""

from __future__ import annotations

from typing import Literal

from sqlalchemy import Connection

from db.rows import AnyRow
from db.statements import workflows as statements
from db.statements.runs import now
from engine.core import ids
from engine.core.errors import IllegalTransition, Refused
from engine.core.trail import Cause, audit
from engine.directory.commands.acting import actor_of
from engine.lifecycle import workflows
from engine.lifecycle.definition import Definition, canonical, load
from engine.lifecycle.guard import require_could_answer_for
from engine.lifecycle.publication import put_in_force
from engine.lifecycle.references import check_references
from engine.lifecycle.states import REVISION


def add(connection: Connection, cause: Cause, workflow_id: str, definition: Definition) -> int:
    """Stage a new revision of a workflow. Returns its number.

    Raises Refused (`forbidden` for whoever is no user, `not_found`, `conflict`) and DefinitionInvalid for a reference that
    the realm does not have.
    """
    _, author_id = actor_of(cause)
    workflow = workflows.locked(connection, cause.realm_id, workflow_id)
    check_references(connection, cause.realm_id, definition)
    text, sha256 = canonical(definition)
    number: int = workflow.last_revision + 1
    statements.insert_revision(
        connection,
        {
            "realm_id": cause.realm_id,
            "workflow_id": workflow_id,
            "number": number,
            "id": ids.new(ids.Prefix.REVISION),
            "definition": text,
            "definition_hash": sha256,
            "author_id": author_id,
        },
    )
    statements.update_workflow(connection, cause.realm_id, workflow_id, {"last_revision": number})
    details = {"revision": number, "definition_hash": sha256}
    target = ("workflow", workflow_id)
    workflows.write(connection, [audit(cause, "workflow.revision.staged", target, details, "workflow")])
    return number


def decide(
    connection: Connection, cause: Cause, workflow_id: str, number: int, verdict: Literal["approve", "reject"]
) -> None:
    """Approve or reject a revision that is not published. Nothing in it is checked: that is done when it is published.

    Raises Refused: `not_found`; `forbidden` for its author (source: "Separation of duties") and for whoever is no user;
    `conflict` when it is past this decision.
    """
    _, decider_id = actor_of(cause)
    workflows.locked(connection, cause.realm_id, workflow_id)
    revision = _existing(connection, cause.realm_id, workflow_id, number)
    if revision.author_id == decider_id:
        raise Refused("forbidden", "nobody decides about a revision of their own")
    status = _after(revision, verdict)
    decision = {"status": status, "decided_by": decider_id, "decided_at": now(connection)}
    statements.update_revision(connection, cause.realm_id, workflow_id, number, decision)
    _record(connection, cause, f"workflow.revision.{status}", revision)


def publish(connection: Connection, cause: Cause, workflow_id: str, number: int) -> None:
    """Publish a revision: its triggers fire from now on, and its publisher answers for its runs.

    A disabled workflow stays disabled. Raises Refused (`not_found`, `conflict`, `forbidden`, `grant_ceiling_exceeded`; `path`
    names the step) and DefinitionInvalid.
    """
    workflow = workflows.locked(connection, cause.realm_id, workflow_id)
    revision = _existing(connection, cause.realm_id, workflow_id, number)
    _after(revision, "publish")
    if workflow.requires_approval and revision.status != "approved":
        raise Refused("forbidden", "this workflow is published only from an approved revision")
    _answer_for(connection, cause, workflow, revision, "publish")
    _record(connection, cause, "workflow.published", revision)


def roll_back(connection: Connection, cause: Cause, workflow_id: str, number: int) -> None:
    """Publish again a revision that was published before, on the account of whoever rolls back: they must be able to do by
    hand what its publisher could. It was approved then, if it had to be, and needs no new approval.

    A disabled workflow stays disabled. Raises Refused (`not_found` and `conflict` with `path` `revision`; `conflict` for a
    workflow of a plugin; `forbidden`, `grant_ceiling_exceeded` with `path` the step) and DefinitionInvalid.
    """
    workflow = workflows.locked(connection, cause.realm_id, workflow_id)
    revision = _existing(connection, cause.realm_id, workflow_id, number, "revision")
    _after(revision, "roll_back", "revision")
    _answer_for(connection, cause, workflow, revision, "roll_back")
    _record(connection, cause, "workflow.rolled_back", revision, superseded=workflow.published_revision)


def _answer_for(connection: Connection, cause: Cause, workflow: AnyRow, revision: AnyRow, event: str) -> None:
    definition = load(revision.definition, revision.definition_hash)
    require_could_answer_for(connection, cause, definition)
    put_in_force(connection, cause, workflow, revision, definition, event)


def _existing(
    connection: Connection, realm_id: str, workflow_id: str, number: int, member: str | None = None
) -> AnyRow:
    revision = statements.revision(connection, realm_id, workflow_id, number)
    if revision is None:
        raise Refused("not_found", "this revision does not exist", member)
    return revision


def _after(revision: AnyRow, event: str, member: str | None = None) -> str:
    """The revision's status after the event. Raises Refused("conflict") for a move that the state table does not have."""
    try:
        return REVISION.move(revision.status, event)
    except IllegalTransition:
        raise Refused("conflict", f"revision {revision.number} is {revision.status}", member) from None


def _record(connection: Connection, cause: Cause, type_: str, revision: AnyRow, **details: object) -> None:
    about = {"revision": revision.number, "definition_hash": revision.definition_hash, **details}
    workflows.write(connection, [audit(cause, type_, ("workflow", revision.workflow_id), about, "workflow")])
