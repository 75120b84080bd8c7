"""Disabling and enabling a workflow.

While it is disabled nothing fires. No run is touched: the worker that comes to one holds it back, and compensation and
cancellation go on, for they only take away (source: "Concepts").
"""

from __future__ import annotations

from sqlalchemy import Connection

from db.rows import AnyRow
from db.session import Database
from db.statements import workflows as statements
from db.statements.outbox import notify
from db.statements.releases import PAGE, end_releases, release_first_page, release_page
from engine.core.errors import IllegalTransition, Refused
from engine.core.trail import Cause, audit
from engine.directory.commands.acting import actor_of
from engine.lifecycle import workflows
from engine.lifecycle.alerts import security_alert
from engine.lifecycle.definition import load
from engine.lifecycle.guard import require_could_answer_for
from engine.lifecycle.schedules import end_open_slots, skip_to_next_slots
from engine.lifecycle.states import WORKFLOW


def disable(connection: Connection, cause: Cause, workflow_id: str) -> bool:
    """Let a workflow fire nothing and its runs pause. Returns whether it was active. Raises an alert.

    A slot that is being filled ends incomplete. Raises Refused (`forbidden` for whoever is no user, `not_found`, `conflict`).
    """
    actor_of(cause)
    workflow = workflows.locked(connection, cause.realm_id, workflow_id)
    state = _after(workflow, "disable")
    if state == workflow.state:
        return False
    statements.update_workflow(connection, cause.realm_id, workflow_id, {"state": state})
    end_open_slots(connection, cause.realm_id, workflow_id)
    done = audit(cause, "workflow.disabled", ("workflow", workflow_id), {}, "workflow")
    workflows.write(connection, [done, *security_alert(cause, workflow_id, "workflow_disabled")])
    notify(connection)
    return True


def enable(connection: Connection, cause: Cause, workflow_id: str) -> bool:
    """Let a disabled workflow fire again and its runs go on where they were. Returns whether it was disabled.

    Whoever enables it must be able to do each step of the published revision by hand, but its publisher stays the one who
    answers for it. Runs of earlier revisions go on too, each under the authority of its own publisher. Slots that passed
    meanwhile are not caught up. The first runs go on when the caller commits, the rest by `release_held`.

    Raises Refused (`not_found`, `conflict`; `forbidden` and `grant_ceiling_exceeded` with `path` the step) and
    DefinitionInvalid for a reference that is gone.
    """
    actor_of(cause)
    workflow = workflows.locked(connection, cause.realm_id, workflow_id)
    state = _after(workflow, "enable")
    if state == workflow.state:
        return False
    published = statements.revision(connection, cause.realm_id, workflow_id, workflow.published_revision)
    assert published is not None
    require_could_answer_for(connection, cause, load(published.definition, published.definition_hash))
    statements.update_workflow(connection, cause.realm_id, workflow_id, {"state": state, "releasing": True})
    skip_to_next_slots(connection, cause.realm_id, workflow_id, workflow.first_published_at)
    release_first_page(connection, cause.realm_id, workflow_id)
    details = {"revision": published.number, "publisher_id": workflow.publisher_id}
    workflows.write(connection, [audit(cause, "workflow.enabled", ("workflow", workflow_id), details, "workflow")])
    notify(connection)
    return True


def release_held(database: Database) -> int:
    """Let the runs go on that workflows held back before they were enabled again: a page a transaction, until no page is full.
    Returns how many. Raises only when the database is away.

    A worker that is pausing a run holds the workflow FOR SHARE, so its pause is committed before the workflow is enabled; and
    what is locked while a page is taken is found by a later one, for the workflow lets go until none is held.
    """
    total = 0
    while True:
        with database.begin() as connection:
            released = release_page(connection)
        total += released
        if released < PAGE:
            break
    with database.begin() as connection:
        end_releases(connection)
    return total


def _after(workflow: AnyRow, event: str) -> str:
    """The workflow's state after the event, which may be the one it is in. Raises Refused("conflict") for a move that the
    state table does not have."""
    if any(event == known and workflow.state == to for _, known, to in WORKFLOW.rows):
        return str(workflow.state)
    try:
        return WORKFLOW.move(workflow.state, event)
    except IllegalTransition:
        raise Refused("conflict", f"the workflow is {workflow.state}") from None
