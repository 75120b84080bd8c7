"""Webhook subscriptions by key. A deleted one is not there."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sqlalchemy import Connection, case, func, select

from db.rows import AnyRow
from db.statements.bulk import keys as keys_of
from db.statements.bulk import unnested
from db.tables import WebhookSubscription, table
from db.tables.columns import ID

subscriptions = table(WebhookSubscription)

_keys = unnested({"realm_id": ID, "id": ID}, "wanted")
_wanted = select(
    subscriptions.c.realm_id,
    subscriptions.c.id,
    subscriptions.c.state,
    subscriptions.c.organization_id,
    subscriptions.c.url,
    subscriptions.c.allow_private_network,
    subscriptions.c.secret,
    case((subscriptions.c.previous_until > func.clock_timestamp(), subscriptions.c.previous_secret)).label(
        "previous_secret"
    ),
).join(
    _keys,
    (subscriptions.c.realm_id == _keys.c.realm_id)
    & (subscriptions.c.id == _keys.c.id)
    & (subscriptions.c.state != "deleted"),
)


def subscriptions_by_key(connection: Connection, keys: Collection[tuple[str, str]]) -> Sequence[AnyRow]:
    """Subscriptions; the previous secret only within its overlap window."""
    return connection.execute(_wanted, keys_of(keys)).all()
