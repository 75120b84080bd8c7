"""What leaves a trail: audit rows and outbox events, committed with what they tell of.

A `Cause` says on whose account something happens. What a run does carries the run's id as request and correlation id, and
the workflow and depth that loop protection needs (source: "Loop protection").
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from db.statements.bulk import insert_into
from db.tables import AuditEvent, OutboxEvent, table
from engine.core import ids
from engine.core.ledger import Row, Write

AUDIT = Write(
    90,
    insert_into(
        table(AuditEvent),
        "realm_id",
        "id",
        "type",
        "category",
        "actor_type",
        "actor_id",
        "target_type",
        "target_id",
        "request_id",
        "correlation_id",
        "details",
    ),
)
OUTBOX = Write(
    91,
    insert_into(
        table(OutboxEvent),
        "realm_id",
        "id",
        "type",
        "user_id",
        "organization_id",
        "payload",
        "correlation_id",
        "caused_by_workflow",
        "depth",
    ),
)


@dataclass(frozen=True, slots=True)
class Cause:
    """On whose account a change is made. `actor_type` is `user`, `service_principal` or `system`."""

    realm_id: str
    actor_type: str = "system"
    actor_id: str | None = None
    request_id: str | None = None
    correlation_id: str | None = None
    workflow_id: str | None = None
    depth: int = 0


def by_the_clock(cause: Cause) -> Cause:
    """The same occasion, for what nobody decided: time did."""
    return replace(cause, actor_type="system", actor_id=None)


def audit(
    cause: Cause, type_: str, target: tuple[str, str], details: Mapping[str, Any], category: str = "directory"
) -> Row:
    """An audit row. `target` is a type and an id; `details` hold identifiers and codes only."""
    return AUDIT(
        realm_id=cause.realm_id,
        id=ids.new(ids.Prefix.AUDIT_EVENT),
        type=type_,
        category=category,
        actor_type=cause.actor_type,
        actor_id=cause.actor_id,
        target_type=target[0],
        target_id=target[1],
        request_id=cause.request_id,
        correlation_id=cause.correlation_id,
        details=details,
    )


def event(
    cause: Cause, type_: str, user_id: str | None, organization_id: str | None, payload: Mapping[str, Any]
) -> Row:
    """An outbox event about a user (and the organization it happened in, if it did)."""
    return OUTBOX(
        realm_id=cause.realm_id,
        id=ids.new(ids.Prefix.OUTBOX_EVENT),
        type=type_,
        user_id=user_id,
        organization_id=organization_id,
        payload=payload,
        correlation_id=cause.correlation_id,
        caused_by_workflow=cause.workflow_id,
        depth=cause.depth,
    )
