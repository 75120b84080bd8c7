"""The outbox of a realm: what has happened, whether it was given to workflows, and what could not be."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query

from api.auth import Caller, permitted
from api.bodies import StrictRoute
from api.paging import Page, PageQuery, page_of
from api.shapes import Answer, At, Document
from api.transaction import Transaction
from db.statements import reads_outbox as reads
from engine.core.errors import Refused
from engine.core.ids import OutboxEventId, UserId
from engine.lifecycle.trigger_members import EventType
from engine.outbox.redispatch import dispatch_again

router = APIRouter(tags=["events"], route_class=StrictRoute)

EventPath = Annotated[OutboxEventId, Path(description="The event.")]
EventState = Literal["waiting", "dispatched", "set_aside"]


class OutboxEvent(Answer):
    """An event, of our own directory or one that was reported. `due_at` is when it is or was due for dispatch; after ten failures
    it is set aside."""

    id: str
    type: str
    event_version: int
    user_id: str | None
    organization_id: str | None
    payload: Document
    correlation_id: str | None
    caused_by_workflow: str | None
    depth: int
    state: EventState
    created_at: At
    due_at: At
    dispatched_at: At | None
    set_aside_at: At | None
    attempts: int
    last_error: str | None


class OutboxQuery(PageQuery):
    type: EventType | None = None
    user_id: UserId | None = None
    state: EventState | None = None


@router.get("/outbox-events")
def list_outbox_events(
    caller: Annotated[Caller, permitted("realm.audit.read")],
    connection: Transaction,
    query: Annotated[OutboxQuery, Query()],
) -> Page[OutboxEvent]:
    """The events of the realm, the newest first."""
    filters = query.model_dump(exclude={"limit", "cursor"})
    return page_of(
        OutboxEvent,
        query,
        (caller.realm_id, "outbox-events"),
        lambda after, limit: reads.events_page(connection, caller.realm_id, after, limit, **filters),
    )


@router.get("/outbox-events/{event_id}")
def get_outbox_event(
    caller: Annotated[Caller, permitted("realm.audit.read")], connection: Transaction, event_id: EventPath
) -> OutboxEvent:
    """One event."""
    return shown_event(connection, caller, event_id)


@router.post("/outbox-events/{event_id}/dispatch", status_code=202)
def dispatch_outbox_event(
    caller: Annotated[Caller, permitted("realm.events.write")], connection: Transaction, event_id: EventPath
) -> OutboxEvent:
    """Dispatch an event that was set aside again, once what it failed for is mended. 409 for one that was not set aside."""
    dispatch_again(connection, caller.cause, event_id)
    return shown_event(connection, caller, event_id)


def shown_event(connection: Transaction, caller: Caller, event_id: str) -> OutboxEvent:
    """An event of the caller's realm. Raises Refused("not_found")."""
    row = reads.event(connection, caller.realm_id, event_id)
    if row is None:
        raise Refused("not_found", "this event does not exist")
    return OutboxEvent.model_validate(row)
