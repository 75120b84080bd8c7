"""Runs as people start and stop them."""

from __future__ import annotations

import secrets

from sqlalchemy import Connection

from db.statements import run_changes
from db.statements.outbox import notify
from db.statements.workflows import revision, share_workflow
from engine.core.errors import Refused
from engine.core.idempotency import once
from engine.core.trail import Cause, audit
from engine.directory.commands.acting import require_still
from engine.directory.facts import Key
from engine.lifecycle import workflows
from engine.lifecycle.definition import load
from engine.lifecycle.guard import require_could_do
from engine.lifecycle.states import RUN
from engine.lifecycle.trigger_members import ManualMembers
from engine.lifecycle.triggers import NewRun, start


def start_manual(
    connection: Connection,
    cause: Cause,
    workflow_id: str,
    subject_id: str,
    organization_id: str | None = None,
    key: str | None = None,
) -> tuple[str, bool]:
    """Start a run for a user by hand. Returns its id, and whether it is new: the same request under the same `key` gives the
    run it gave before, whatever has become of the workflow since.

    The starter's own authority must cover every step, and nobody starts a run about themselves. Raises Refused (`not_found`,
    `conflict`, `forbidden`, `grant_ceiling_exceeded`; `validation_failed` for a key of another request).
    """
    if cause.actor_type != "user" or cause.actor_id is None:
        raise Refused("forbidden", "a run is started by a user")
    starter = (cause.realm_id, cause.actor_id)

    def make() -> str:
        return _start(connection, starter, workflow_id, subject_id, organization_id)

    if key is None:
        return make(), True
    request = {"workflow_id": workflow_id, "subject_id": subject_id, "organization_id": organization_id}
    run_id, new = once(connection, cause, "workflow.run.start", key, request, make)
    if not new:
        require_still(connection, cause, "realm.workflows.run")
    return run_id, new


def _start(connection: Connection, starter: Key, workflow_id: str, subject_id: str, organization_id: str | None) -> str:
    realm_id, starter_id = starter
    workflow = share_workflow(connection, realm_id, workflow_id)
    if workflow is None:
        raise Refused("not_found", "this workflow does not exist")
    if starter_id == subject_id:
        raise Refused("forbidden", "nobody starts a run about themselves", "subject_id")
    if workflow.state != "active":
        raise Refused("conflict", f"the workflow is {workflow.state}")
    published = revision(connection, realm_id, workflow_id, workflow.published_revision)
    assert published is not None
    definition = load(published.definition, published.definition_hash)
    if not any(isinstance(trigger, ManualMembers) for trigger in definition.triggers):
        raise Refused("conflict", "the published revision has no manual trigger")
    require_could_do(
        connection,
        starter,
        definition,
        "realm.workflows.run",
        subject_id=subject_id,
        organization_id=organization_id,
    )
    (run_id,) = start(
        connection,
        [
            NewRun(
                realm_id,
                workflow_id,
                workflow.published_revision,
                workflow.publisher_id,
                subject_id,
                organization_id,
                "manual",
                f"manual:{secrets.token_hex(16)}",
                definition.schema_version,
                starter_id=starter_id,
            )
        ],
    )
    notify(connection)
    return run_id


def cancel(connection: Connection, cause: Cause, run_id: str) -> None:
    """Ask for a run to be cancelled: it then undoes what it did, like a failing one.

    Raises Refused: `not_found`; `conflict` once it has finished, while it compensates, or when it was asked for before.
    """
    run = run_changes.lock_run(connection, cause.realm_id, run_id)
    if run is None:
        raise Refused("not_found", "this run does not exist")
    if run.state in RUN.terminal or run.state == "compensating" or run.cancel_requested_at is not None:
        state = "being cancelled" if run.state not in (*RUN.terminal, "compensating") else run.state
        raise Refused("conflict", f"the run is {state} already")
    run_changes.request_cancel(connection, cause.realm_id, run_id)
    details = {"workflow_id": run.workflow_id}
    workflows.write(connection, [audit(cause, "workflow.run.cancel_requested", ("run", run_id), details, "workflow")])
    notify(connection)
