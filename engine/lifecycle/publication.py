"""What publication makes of a workflow: one revision in force, its publisher accountable, its triggers spread out.

The publisher is the accountable actor of every run started from then on; runs in flight keep theirs.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection

from db.rows import AnyRow
from db.statements import workflows as statements
from db.statements.runs import now
from engine.core.trail import Cause
from engine.lifecycle.definition import Definition
from engine.lifecycle.schedules import end_open_slots
from engine.lifecycle.slots import slot_after
from engine.lifecycle.states import REVISION, WORKFLOW
from engine.lifecycle.trigger_members import EventMembers, ScheduleMembers


def put_in_force(
    connection: Connection, cause: Cause, workflow: AnyRow, revision: AnyRow, definition: Definition, event: str
) -> None:
    """Let a revision of a locked workflow be the published one, by `publish` or `roll_back`; the one before is superseded.

    What this asks of the actor was asked before (guard.py).
    """
    moment = now(connection)
    realm_id, workflow_id = cause.realm_id, workflow.id
    if workflow.published_revision is not None:
        superseded = {"status": REVISION.move("published", "supersede")}
        statements.update_revision(connection, realm_id, workflow_id, workflow.published_revision, superseded)
    published = {
        "status": REVISION.move(revision.status, event),
        "published_by": cause.actor_id,
        "published_at": moment,
    }
    statements.update_revision(connection, realm_id, workflow_id, revision.number, published)
    anchor = workflow.first_published_at or moment
    current = {
        "state": WORKFLOW.move(workflow.state, event),
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
