"""The outbox: what happened in the directory, written in the transaction in which it happened."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, CheckConstraint, ForeignKeyConstraint, Identity, Index, text
from sqlmodel import Field, SQLModel

from db.tables.columns import DOCUMENT, ID, MOMENT, NOW, PROSE, WORD


class OutboxEvent(SQLModel, table=True):
    """One event, kept until it was dispatched to triggers, then as history until cleaned.

    Undispatched rows are found by state, not by a remembered position: a transaction that commits late is never skipped.
    `caused_by_workflow` and `depth` carry loop protection; `correlation_id` is the run that caused the event.
    """

    __tablename__ = "outbox_events"
    __table_args__ = (
        ForeignKeyConstraint(["realm_id"], ["realms.id"]),
        CheckConstraint("dispatched_at IS NULL OR set_aside_at IS NULL", name="one_end"),
        Index(
            "outbox_events_undispatched",
            "due_at",
            "position",
            postgresql_where=text("dispatched_at IS NULL AND set_aside_at IS NULL"),
        ),
        Index("outbox_events_set_aside", "realm_id", "id", postgresql_where=text("set_aside_at IS NOT NULL")),
        Index("outbox_events_of_user", "realm_id", "user_id", "id", postgresql_where=text("user_id IS NOT NULL")),
        Index("outbox_events_dispatched", "dispatched_at", postgresql_where=text("dispatched_at IS NOT NULL")),
        {
            "postgresql_with": {
                "fillfactor": 80,
                "autovacuum_vacuum_scale_factor": 0.01,
                "autovacuum_vacuum_threshold": 500,
                "autovacuum_vacuum_cost_delay": 0,
            }
        },
    )

    realm_id: str = Field(sa_type=ID, primary_key=True)
    id: str = Field(sa_type=ID, primary_key=True)
    position: int | None = Field(
        default=None, sa_type=BigInteger, nullable=False, sa_column_args=[Identity(always=True)]
    )
    type: str = Field(sa_type=WORD)
    event_version: int = Field(default=1, sa_column_kwargs={"server_default": text("1")})
    user_id: str | None = Field(default=None, sa_type=ID)
    organization_id: str | None = Field(default=None, sa_type=ID)
    payload: dict[str, Any] = Field(sa_type=DOCUMENT)
    correlation_id: str | None = Field(default=None, sa_type=ID)
    caused_by_workflow: str | None = Field(default=None, sa_type=ID)
    depth: int = Field(default=0, sa_column_kwargs={"server_default": text("0")})
    created_at: datetime = Field(sa_type=MOMENT, sa_column_kwargs={"server_default": text(NOW)})
    due_at: datetime = Field(sa_type=MOMENT, sa_column_kwargs={"server_default": text(NOW)})
    dispatched_at: datetime | None = Field(default=None, sa_type=MOMENT)
    set_aside_at: datetime | None = Field(default=None, sa_type=MOMENT)
    attempts: int = Field(default=0, sa_column_kwargs={"server_default": text("0")})
    last_error: str | None = Field(default=None, sa_type=PROSE)
