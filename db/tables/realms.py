"""Realms: the tenants. Every other row belongs to exactly one, and names it first in its key."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import CheckConstraint, UniqueConstraint, text
from sqlmodel import Field, SQLModel

from db.tables.columns import ID, MOMENT, NOW, PROSE, WORD


class Realm(SQLModel, table=True):
    """A tenant, with its policy and the wording of its notices (null: the product's own)."""

    __tablename__ = "realms"
    __table_args__ = (
        UniqueConstraint("name"),
        CheckConstraint("(notice_subject IS NULL) = (notice_body IS NULL)", name="notice_is_whole"),
    )

    id: str = Field(sa_type=ID, primary_key=True)
    name: str = Field(sa_type=WORD)
    workflow_publish_approval: bool = Field(default=False, sa_column_kwargs={"server_default": text("false")})
    """Policy `extensions.workflow_publish_approval`: workflows created while true need an approved revision."""
    notice_subject: str | None = Field(default=None, sa_type=PROSE)
    notice_body: str | None = Field(default=None, sa_type=PROSE)
    created_at: datetime = Field(sa_type=MOMENT, sa_column_kwargs={"server_default": text(NOW)})
