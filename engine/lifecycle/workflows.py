"""Workflows: a name, an owner, and a line of revisions."""

from __future__ import annotations

import re
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError

from db.rows import AnyRow
from db.statements import workflows as statements
from engine.core import ids
from engine.core.errors import Refused
from engine.core.faults import sqlstate
from engine.core.ledger import Ledger
from engine.core.ledger import Row as LedgerRow
from engine.core.trail import Cause, audit
from engine.directory.commands.acting import actor_of
from engine.directory.facts import Wanted
from engine.directory.load import load_facts
from engine.lifecycle.policy import publication_needs_approval

_LINE_BREAKS = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029]")


def create(
    connection: Connection,
    cause: Cause,
    *,
    name: str,
    description: str | None = None,
    owner_id: str | None = None,
    requires_approval: bool | None = None,
) -> str:
    """A new workflow, in state draft. Returns its id.

    Whether its revisions need approval is fixed now: as asked or as the realm's policy says, whichever is stricter; when that
    cannot be read, they do. Raises Refused (`validation_failed`, `not_found`, `conflict`).
    """
    _check(connection, cause, {"name": name, "description": description, "owner_id": owner_id})
    workflow_id = ids.new(ids.Prefix.WORKFLOW)
    needs_approval = publication_needs_approval(connection, cause.realm_id, requires_approval)
    values = {
        "realm_id": cause.realm_id,
        "id": workflow_id,
        "name": name,
        "description": description,
        "owner_id": owner_id,
        "requires_approval": needs_approval,
    }
    _unless_taken(connection, lambda: statements.insert_workflow(connection, values))
    write(connection, [audit(cause, "workflow.created", ("workflow", workflow_id), {}, "workflow")])
    return workflow_id


def update(connection: Connection, cause: Cause, workflow_id: str, **changes: Any) -> None:
    """Change `name`, `description` or `owner_id`. Raises Refused (`not_found`, `validation_failed`, `conflict`)."""
    locked(connection, cause.realm_id, workflow_id)
    _check(connection, cause, changes)
    if changes:
        _unless_taken(connection, lambda: statements.update_workflow(connection, cause.realm_id, workflow_id, changes))
        details = {"changed_fields": sorted(changes)}
        write(connection, [audit(cause, "workflow.updated", ("workflow", workflow_id), details, "workflow")])


def locked(connection: Connection, realm_id: str, workflow_id: str) -> AnyRow:
    """The workflow, locked for change. Raises Refused: `not_found`, or `conflict` for one that a plugin installed."""
    row = statements.lock_workflow(connection, realm_id, workflow_id)
    if row is None:
        raise Refused("not_found", "this workflow does not exist")
    if row.plugin_id is not None:
        raise Refused("conflict", "this workflow belongs to a plugin and is changed through it")
    return row


def write(connection: Connection, rows: list[LedgerRow]) -> None:
    """Write rows that need no ledger of their own."""
    ledger = Ledger()
    ledger.add(rows)
    ledger.write(connection)


def _check(connection: Connection, cause: Cause, members: dict[str, Any]) -> None:
    name = members.get("name")
    if "name" in members and (not isinstance(name, str) or not 1 <= len(name) <= 100 or _LINE_BREAKS.search(name)):
        raise Refused("validation_failed", "a name has 1 to 100 characters and no line break", "name")
    description = members.get("description")
    if description is not None and len(description) > 500:
        raise Refused("validation_failed", "a description has at most 500 characters", "description")
    owner_id = members.get("owner_id")
    if owner_id is not None:
        owner = (cause.realm_id, owner_id)
        # The actor's authority is asked for behind the command: both users are locked at once, in the order of all locks.
        wanted = Wanted(watching={owner}, authority_of={actor_of(cause)})
        user = load_facts(connection, wanted).users.get(owner)
        if user is None or user.state != "active":
            raise Refused("not_found", "this user does not exist", "owner_id")


def _unless_taken(connection: Connection, change: Any) -> None:
    try:
        with connection.begin_nested():
            change()
    except IntegrityError as error:
        if sqlstate(error) == "23505":
            raise Refused("conflict", "a workflow of this name exists already", "name") from error
        raise
