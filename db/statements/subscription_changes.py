"""One webhook subscription at a time: what a person changes about it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, Row, select

from db.tables import WebhookSubscription, table

subscriptions = table(WebhookSubscription)


def insert_subscription(connection: Connection, values: Mapping[str, Any]) -> None:
    """A new subscription."""
    connection.execute(subscriptions.insert().values(values))


def lock_subscription(connection: Connection, realm_id: str, subscription_id: str) -> Row[Any] | None:
    """A subscription that is not deleted, locked for change."""
    return connection.execute(
        select(subscriptions)
        .where(
            subscriptions.c.realm_id == realm_id,
            subscriptions.c.id == subscription_id,
            subscriptions.c.state != "deleted",
        )
        .with_for_update()
    ).one_or_none()


def update_subscription(connection: Connection, realm_id: str, subscription_id: str, values: Mapping[str, Any]) -> None:
    """Change columns of a subscription that the caller has locked."""
    connection.execute(
        subscriptions.update()
        .where(subscriptions.c.realm_id == realm_id, subscriptions.c.id == subscription_id)
        .values(values)
    )
