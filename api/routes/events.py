"""Events of an outside directory."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, Response

from api.auth import Caller, permitted
from api.bodies import StrictRoute
from api.routes.outbox_events import OutboxEvent, shown_event
from api.shapes import IdempotencyKey
from api.transaction import Transaction
from engine.lifecycle import events
from engine.lifecycle.event_members import AnyEvent

router = APIRouter(tags=["events"], route_class=StrictRoute)


@router.post(
    "/events", status_code=202, responses={200: {"model": OutboxEvent, "description": "This key's event, taken before"}}
)
def receive_event(
    caller: Annotated[Caller, permitted("realm.events.write", machines=True)],
    connection: Transaction,
    body: AnyEvent,
    response: Response,
    idempotency_key: Annotated[IdempotencyKey, Header(alias="Idempotency-Key")],
) -> OutboxEvent:
    """Report what has happened in another directory: 202. Workflows that listen to its type act on it as on an event of our own;
    nothing else changes here. The same Idempotency-Key with the same event gives the one that was taken before: 200."""
    event_id, new = events.receive(connection, caller.cause, idempotency_key, body)
    response.status_code = 202 if new else 200
    return shown_event(connection, caller, event_id)
