"""Webhook subscriptions: where a realm's calls go, and the encrypted secrets they are signed with."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import CheckConstraint, ForeignKeyConstraint, Index, LargeBinary, text
from sqlmodel import Field, SQLModel

from db.tables.columns import ID, MOMENT, NOW, PROSE, WORD, one_of


class WebhookSubscription(SQLModel, table=True):
    """A destination. Realm-wide when it names no organization; only those may be called by a workflow.

    Secrets are ciphertext bound to realm and subscription (lifecycle.md, decision 9). While a rotated secret is in its overlap
    window (`previous_until`), calls carry a second signature with it. A deleted one keeps no secret, nor the URL, which may
    hold a key.
    """

    __tablename__ = "webhook_subscriptions"
    __table_args__ = (
        ForeignKeyConstraint(["realm_id"], ["realms.id"]),
        ForeignKeyConstraint(["realm_id", "organization_id"], ["organizations.realm_id", "organizations.id"]),
        CheckConstraint(one_of("state", "active", "paused", "disabled", "deleted"), name="state_is_known"),
        CheckConstraint("(previous_secret IS NULL) = (previous_until IS NULL)", name="overlap_is_whole"),
        CheckConstraint(
            "CASE state WHEN 'deleted' THEN num_nonnulls(url, secret, previous_secret) = 0 ELSE num_nulls(url, secret) = 0 END",
            name="deleted_keeps_no_secret",
        ),
        Index("webhook_subscriptions_newest", "realm_id", text("id DESC"), postgresql_where=text("state <> 'deleted'")),
        Index("webhook_subscriptions_disabled", "realm_id", postgresql_where=text("state = 'disabled'")),
    )

    realm_id: str = Field(sa_type=ID, primary_key=True)
    id: str = Field(sa_type=ID, primary_key=True)
    name: str = Field(sa_type=PROSE)
    organization_id: str | None = Field(default=None, sa_type=ID)
    url: str | None = Field(default=None, sa_type=PROSE)
    state: str = Field(default="active", sa_type=WORD, sa_column_kwargs={"server_default": "active"})
    allow_private_network: bool = Field(default=False, sa_column_kwargs={"server_default": text("false")})
    secret: bytes | None = Field(default=None, sa_type=LargeBinary)
    previous_secret: bytes | None = Field(default=None, sa_type=LargeBinary)
    previous_until: datetime | None = Field(default=None, sa_type=MOMENT)
    created_at: datetime = Field(sa_type=MOMENT, sa_column_kwargs={"server_default": text(NOW)})
