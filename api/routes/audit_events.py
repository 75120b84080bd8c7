"""The audit trail of a realm."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field

from api.auth import Caller, permitted
from api.bodies import StrictRoute
from api.paging import INT8, Page, PageQuery, page_of
from api.shapes import Answer, At, Document, Moment
from api.transaction import Transaction
from db.statements import reads_audit as reads

router = APIRouter(tags=["audit"], route_class=StrictRoute)

AnyId = Annotated[str, Field(pattern=r"^[a-z]{3}_[0-9a-z]{26}$")]


class AuditEvent(Answer):
    """Who did what to whom. Identifiers and codes only. What a run does carries its id as `correlation_id`."""

    id: str
    type: str
    category: str
    actor_type: str
    actor_id: str | None
    target_type: str
    target_id: str
    request_id: str | None
    correlation_id: str | None
    details: Document
    created_at: At


class AuditQuery(PageQuery):
    target_id: AnyId | None = None
    correlation_id: AnyId | None = None
    since: Moment | None = None


@router.get("/audit-events")
def list_audit_events(
    caller: Annotated[Caller, permitted("realm.audit.read")],
    connection: Transaction,
    query: Annotated[AuditQuery, Query()],
) -> Page[AuditEvent]:
    """The audit events of the realm, the newest first."""
    filters = query.model_dump(exclude={"limit", "cursor"})
    return page_of(
        AuditEvent,
        query,
        (caller.realm_id, "audit-events"),
        lambda after, limit: reads.audit_page(connection, caller.realm_id, after, limit, **filters),
        "position",
        most=INT8,
    )
