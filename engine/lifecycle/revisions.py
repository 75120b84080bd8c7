"""Revisions: immutable definitions, one of them published at a time.

The publisher is the accountable actor of every run started from then on; runs in flight keep theirs.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection

from db.rows import AnyRow
from db.statements import workflows as statements
from db.statements.runs import now
from engine.core import ids
from engine.core.errors import Refused
from engine.core.trail import Cause, audit
from engine.lifecycle import workflows
from engine.lifecycle.definition import Definition, canonical, load
from engine.lifecycle.guard import require_could_do
from engine.lifecycle.references import check_references
from engine.lifecycle.schedules import end_open_slots
from engine.lifecycle.selectors.registry import require_selectable
from engine.lifecycle.slots import slot_after
from engine.lifecycle.states import REVISION, WORKFLOW
from engine.lifecycle.trigger_members import EventMembers, ScheduleMembers


def add(connection: Connection, cause: Cause, workflow_id: str, definition: Definition) -> int:
    """Stage a new revision of a workflow. Returns its number.

    Raises Refused (`not_found`, `conflict`) and DefinitionInvalid for a reference that the realm does not have.
    """
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
            "author_id": cause.actor_id,
        },
    )
    statements.update_workflow(connection, cause.realm_id, workflow_id, {"last_revision": number})
    details = {"revision": number, "definition_hash": sha256}
    target = ("workflow", workflow_id)
    workflows.write(connection, [audit(cause, "workflow.revision.staged", target, details, "workflow")])
    return number


def publish(connection: Connection, cause: Cause, workflow_id: str, number: int) -> None:
    """Publish a revision: its triggers fire from now on, and its publisher answers for its runs.

    A disabled workflow stays disabled. Raises Refused (`not_found`, `conflict`, `forbidden`, `grant_ceiling_exceeded`; `path`
    names the step) and DefinitionInvalid.
    """
    workflow = workflows.locked(connection, cause.realm_id, workflow_id)
    revision = statements.revision(connection, cause.realm_id, workflow_id, number)
    if revision is None:
        raise Refused("not_found", "this revision does not exist")
    if revision.status not in ("draft", "approved"):
        raise Refused("conflict", f"revision {number} is {revision.status}")
    if workflow.requires_approval and revision.status != "approved":
        raise Refused("forbidden", "this workflow is published only from an approved revision")
    if cause.actor_type != "user" or cause.actor_id is None:
        raise Refused("forbidden", "a workflow is published by a user, who answers for it")
    definition = load(revision.definition, revision.definition_hash)
    check_references(connection, cause.realm_id, definition)
    require_selectable(definition)
    require_could_do(connection, (cause.realm_id, cause.actor_id), definition, "realm.workflows.publish")
    _make_current(connection, cause, workflow, revision, definition)
    details = {"revision": number, "definition_hash": revision.definition_hash}
    target = ("workflow", workflow_id)
    workflows.write(connection, [audit(cause, "workflow.published", target, details, "workflow")])


def _make_current(
    connection: Connection, cause: Cause, workflow: AnyRow, revision: AnyRow, definition: Definition
) -> None:
    moment = now(connection)
    realm_id, workflow_id = cause.realm_id, workflow.id
    if workflow.published_revision is not None:
        superseded = REVISION.move("published", "supersede")
        statements.update_revision(
            connection, realm_id, workflow_id, workflow.published_revision, {"status": superseded}
        )
    published = {
        "status": REVISION.move(revision.status, "publish"),
        "published_by": cause.actor_id,
        "published_at": moment,
    }
    statements.update_revision(connection, realm_id, workflow_id, revision.number, published)
    anchor = workflow.first_published_at or moment
    current = {
        "state": WORKFLOW.move(workflow.state, "publish"),
        "published_revision": revision.number,
        "publisher_id": cause.actor_id,
        "first_published_at": anchor,
    }
    statements.update_workflow(connection, realm_id, workflow_id, current)
    events, schedules = _triggers(realm_id, workflow_id, definition, anchor, moment)
    end_open_slots(connection, realm_id, workflow_id)
    statements.replace_triggers(connection, realm_id, workflow_id, events, schedules)


def _triggers(
    realm_id: str, workflow_id: str, definition: Definition, anchor: datetime, moment: datetime
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The published triggers, spread out: what an event looks up, and when each schedule has its next slot."""
    events: list[dict[str, Any]] = []
    schedules: list[dict[str, Any]] = []
    for ordinal, trigger in enumerate(definition.triggers):
        about = {"realm_id": realm_id, "workflow_id": workflow_id, "ordinal": ordinal}
        if isinstance(trigger, EventMembers):
            events += [
                {**about, "event_type": event_type, "organization_id": trigger.organization_id}
                for event_type in trigger.event_types
            ]
        elif isinstance(trigger, ScheduleMembers):
            every = trigger.every.timedelta
            schedules.append(
                {
                    **about,
                    "every_seconds": every // timedelta(seconds=1),
                    "selector": trigger.select.model_dump(by_alias=True, exclude_unset=True),
                    "next_slot_at": slot_after(anchor, every, moment),
                }
            )
    return events, schedules
