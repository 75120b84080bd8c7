"""Idempotency keys of callers: what a request with that key made, so that the same request makes it once."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import CheckConstraint, ForeignKeyConstraint, Index, text
from sqlmodel import Field, SQLModel

from db.tables.columns import ID, MOMENT, NOW, WORD


class IdempotencyKey(SQLModel, table=True):
    """Written in the transaction of what it stands for. A key belongs to the caller who chose it and to one operation."""

    __tablename__ = "idempotency_keys"
    __table_args__ = (
        ForeignKeyConstraint(["realm_id"], ["realms.id"]),
        CheckConstraint("request_hash ~ '^[0-9a-f]{64}$'", name="hash_is_sha256"),
        Index("idempotency_keys_age", "created_at"),
    )

    realm_id: str = Field(sa_type=ID, primary_key=True)
    actor_id: str = Field(sa_type=ID, primary_key=True)
    operation: str = Field(sa_type=WORD, primary_key=True)
    key: str = Field(sa_type=ID, primary_key=True)
    request_hash: str = Field(sa_type=WORD)
    """SHA-256, in hex, of the request's canonical JSON."""
    result_id: str = Field(sa_type=ID)
    """What the request made."""
    created_at: datetime = Field(sa_type=MOMENT, sa_column_kwargs={"server_default": text(NOW)})
