"""The audit trail: insert-only for the application's role, committed with what it records."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, ForeignKeyConstraint, Identity, Index, text
from sqlmodel import Field, SQLModel

from db.tables.columns import BRIN, DOCUMENT, ID, MOMENT, NOW, WORD


class AuditEvent(SQLModel, table=True):
    """Who did what to whom. Identifiers and codes only; nothing a person typed."""

    __tablename__ = "audit_events"
    __table_args__ = (
        ForeignKeyConstraint(["realm_id"], ["realms.id"]),
        Index("audit_events_of_target", "realm_id", "target_id", "position"),
        Index(
            "audit_events_of_correlation",
            "realm_id",
            "correlation_id",
            "position",
            postgresql_where=text("correlation_id IS NOT NULL"),
        ),
        Index("audit_events_created", "created_at", postgresql_using="brin", postgresql_with=BRIN),
    )

    realm_id: str = Field(sa_type=ID, primary_key=True)
    position: int | None = Field(
        default=None, sa_type=BigInteger, primary_key=True, sa_column_args=[Identity(always=True)]
    )
    id: str = Field(sa_type=ID)
    type: str = Field(sa_type=WORD)
    category: str = Field(sa_type=WORD)
    actor_type: str = Field(sa_type=WORD)
    actor_id: str | None = Field(default=None, sa_type=ID)
    target_type: str = Field(sa_type=WORD)
    target_id: str = Field(sa_type=ID)
    request_id: str | None = Field(default=None, sa_type=ID)
    correlation_id: str | None = Field(default=None, sa_type=ID)
    details: dict[str, Any] = Field(sa_type=DOCUMENT)
    created_at: datetime = Field(sa_type=MOMENT, sa_column_kwargs={"server_default": text(NOW)})
