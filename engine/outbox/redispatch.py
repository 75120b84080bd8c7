"""An event that was set aside is dispatched again, when a person asks for it (lifecycle.md, decision 3)."""

from __future__ import annotations

from sqlalchemy import Connection

from db.statements import outbox as statements
from engine.core.errors import Refused
from engine.core.ledger import Ledger
from engine.core.trail import Cause, audit


def dispatch_again(connection: Connection, cause: Cause, event_id: str) -> None:
    """Let an event that was set aside wait for dispatch again, due now, with as many attempts as a new one.

    Raises Refused: `not_found`; `conflict` for an event that waits or was dispatched.
    """
    event = statements.lock_event(connection, cause.realm_id, event_id)
    if event is None:
        raise Refused("not_found", "this event does not exist")
    if event.set_aside_at is None:
        raise Refused("conflict", "this event was not set aside")
    statements.wait_again(connection, cause.realm_id, event_id)
    details = {"event_type": event.type, "attempts": event.attempts, "last_error": event.last_error}
    ledger = Ledger()
    ledger.add([audit(cause, "event.dispatch_requested", ("outbox_event", event_id), details)])
    ledger.write(connection)
    statements.notify(connection)
