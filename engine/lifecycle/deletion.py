"""Deleting a workflow: from then on it is not there, and its name is free; the row stays while runs of it are kept."""

from __future__ import annotations

from sqlalchemy import Connection

from db.statements import workflows as statements
from db.statements.outbox import notify
from db.statements.run_changes import has_unfinished
from db.statements.runs import now
from engine.core.errors import Refused
from engine.core.trail import Cause, audit
from engine.directory.commands.acting import actor_of, require_still
from engine.lifecycle import workflows
from engine.lifecycle.alerts import security_alert
from engine.lifecycle.schedules import end_open_slots
from engine.lifecycle.states import WORKFLOW


def delete(connection: Connection, cause: Cause, workflow_id: str) -> None:
    """Delete a workflow that has no unfinished run. Its triggers go at once; of an active one that raises an alert.

    One that was ever published needs `realm.workflows.publish` as well: deleting it stops it as disabling does. Raises Refused
    (`not_found`, `forbidden`, `conflict`).
    """
    actor_of(cause)
    workflow = workflows.locked(connection, cause.realm_id, workflow_id)
    if workflow.first_published_at is not None:
        require_still(connection, cause, "realm.workflows.publish")
    if has_unfinished(connection, cause.realm_id, workflow_id):  # none begins: that takes the workflow FOR SHARE
        raise Refused("conflict", "the workflow has runs that are not finished")
    end_open_slots(connection, cause.realm_id, workflow_id)
    statements.replace_triggers(connection, cause.realm_id, workflow_id, [], [])
    gone = {"state": WORKFLOW.move(workflow.state, "delete"), "deleted_at": now(connection)}
    statements.update_workflow(connection, cause.realm_id, workflow_id, gone)
    rows = [audit(cause, "workflow.deleted", ("workflow", workflow_id), {"state": workflow.state}, "workflow")]
    if workflow.state == "active":
        rows += security_alert(cause, workflow_id, "workflow_deleted")
        notify(connection)
    workflows.write(connection, rows)
