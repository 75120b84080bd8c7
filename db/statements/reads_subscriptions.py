"""Webhook subscriptions, as they are read: never their secrets. A deleted one is not there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Row, Select, case, func, select

from db.statements.reads_pages import newest
from db.tables import WebhookSubscription, table

subscriptions = table(WebhookSubscription)

_shown: Select[Any] = select(
    subscriptions.c.id,
    subscriptions.c.name,
    subscriptions.c.organization_id,
    subscriptions.c.url,
    subscriptions.c.state,
    subscriptions.c.allow_private_network,
    case((subscriptions.c.previous_until > func.clock_timestamp(), subscriptions.c.previous_until)).label(
        "previous_secret_until"
    ),
    subscriptions.c.created_at,
).where(subscriptions.c.state != "deleted")


def subscriptions_page(
    connection: Connection, realm_id: str, after: str | None, limit: int, *, state: str | None = None
) -> Sequence[Row[Any]]:
    """Subscriptions of a realm, the newest first."""
    statement = _shown.where(subscriptions.c.realm_id == realm_id)
    if state is not None:
        statement = statement.where(subscriptions.c.state == state)
    return newest(connection, statement, subscriptions.c.id, after, limit)


def subscription(connection: Connection, realm_id: str, subscription_id: str) -> Row[Any] | None:
    """A subscription."""
    return connection.execute(
        _shown.where(subscriptions.c.realm_id == realm_id, subscriptions.c.id == subscription_id)
    ).one_or_none()
