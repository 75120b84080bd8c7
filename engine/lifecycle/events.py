"""Events of an outside directory: taken once, and from then on like those of our own (lifecycle.md, "Routes").

Nothing in our directory changes by it: the event says what has happened elsewhere, and workflows that listen to its type act on
it. So nothing is locked either: a user who is gone by the time of the dispatch is passed over then.
"""

from __future__ import annotations

from sqlalchemy import Connection

from db.statements import references
from db.statements.outbox import notify
from db.statements.reads_users import user
from engine.core.errors import Refused
from engine.core.idempotency import once
from engine.core.ledger import Ledger
from engine.core.trail import Cause, audit
from engine.core.trail import event as outbox_event
from engine.lifecycle.event_members import ReceivedEvent


def receive(connection: Connection, cause: Cause, key: str, event: ReceivedEvent) -> tuple[str, bool]:
    """Take an event that a user or a service principal reports. Returns its id in the outbox, and whether it is new: the same
    event under the same `key` is the one that was taken before.

    A user reports nothing about themselves: it would start runs about them, and nobody starts those by hand either. Raises
    Refused: `forbidden` for that; `not_found` for what the realm does not have, by the member that names it;
    `validation_failed` for a key that was used with another event, `conflict` for one that is in use.
    """
    if cause.actor_id == event.user_id:
        raise Refused("forbidden", "nobody reports an event about themselves", "user_id")
    request = {"type": event.type, "user_id": event.user_id, **event.payload}
    return once(connection, cause, "event.receive", key, request, lambda: _take(connection, cause, event))


def _take(connection: Connection, cause: Cause, event: ReceivedEvent) -> str:
    _check_references(connection, cause.realm_id, event)
    organization_id = event.payload.get("organization_id")
    row = outbox_event(cause, event.type, event.user_id, organization_id, event.payload)
    event_id = str(row.values["id"])
    details = {"event_type": event.type, "user_id": event.user_id, **event.payload}
    ledger = Ledger()
    ledger.add([row, audit(cause, "event.received", ("outbox_event", event_id), details)])
    ledger.write(connection)
    notify(connection)
    return event_id


def _check_references(connection: Connection, realm_id: str, event: ReceivedEvent) -> None:
    """Raise Refused for the first thing that the realm does not have; what another realm has is missing here."""
    organization_id, group_id, role_id = (
        event.payload.get(name) for name in ("organization_id", "group_id", "role_id")
    )
    if user(connection, realm_id, event.user_id) is None:
        raise Refused("not_found", "this user does not exist", "user_id")
    if organization_id is not None and not references.active_organizations(connection, realm_id, [organization_id]):
        raise Refused("not_found", "this organization does not exist", "organization_id")
    if group_id is not None and _organization_of(connection, realm_id, group_id) != organization_id:
        raise Refused("not_found", "this organization has no such group", "group_id")
    if role_id is not None and not references.role_boundaries(connection, realm_id, [role_id]):
        raise Refused("not_found", "this role does not exist", "role_id")


def _organization_of(connection: Connection, realm_id: str, group_id: str) -> str | None:
    return references.group_organizations(connection, realm_id, [group_id]).get(group_id)
