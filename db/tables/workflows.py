"""Workflows, their immutable revisions, and the published revision's triggers spread out for matching."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, CheckConstraint, ForeignKeyConstraint, Index, text
from sqlmodel import Field, SQLModel

from db.tables.columns import DOCUMENT, ID, MOMENT, NOW, PROSE, WORD, one_of


class Workflow(SQLModel, table=True):
    """A named line of revisions, at most one of them published. A deleted one stays as a row while runs of it are kept."""

    __tablename__ = "workflows"
    __table_args__ = (
        ForeignKeyConstraint(["realm_id"], ["realms.id"]),
        ForeignKeyConstraint(["realm_id", "owner_id"], ["users.realm_id", "users.id"]),
        ForeignKeyConstraint(["realm_id", "publisher_id"], ["users.realm_id", "users.id"]),
        CheckConstraint(one_of("state", "draft", "active", "disabled", "deleted"), name="state_is_known"),
        CheckConstraint("(state = 'deleted') = (deleted_at IS NOT NULL)", name="deleted_has_a_moment"),
        CheckConstraint("char_length(name) BETWEEN 1 AND 100", name="name_length"),
        CheckConstraint("char_length(description) <= 500", name="description_length"),
        CheckConstraint("state <> 'active' OR published_revision IS NOT NULL", name="active_is_published"),
        CheckConstraint(
            "(published_revision IS NULL) = (publisher_id IS NULL)"
            " AND (published_revision IS NULL OR first_published_at IS NOT NULL)",
            name="published_has_a_publisher",
        ),
        Index("workflows_name", "realm_id", "name", unique=True, postgresql_where=text("state <> 'deleted'")),
        Index("workflows_releasing", "realm_id", "id", postgresql_where=text("releasing")),
        Index("workflows_deleted", "deleted_at", postgresql_where=text("deleted_at IS NOT NULL")),
    )

    realm_id: str = Field(sa_type=ID, primary_key=True)
    id: str = Field(sa_type=ID, primary_key=True)
    name: str = Field(sa_type=PROSE)
    description: str | None = Field(default=None, sa_type=PROSE)
    owner_id: str | None = Field(default=None, sa_type=ID)
    state: str = Field(default="draft", sa_type=WORD, sa_column_kwargs={"server_default": "draft"})
    requires_approval: bool = Field(default=False, sa_column_kwargs={"server_default": text("false")})
    last_revision: int = Field(default=0, sa_column_kwargs={"server_default": text("0")})
    published_revision: int | None = Field(default=None)
    publisher_id: str | None = Field(default=None, sa_type=ID)
    first_published_at: datetime | None = Field(default=None, sa_type=MOMENT)
    """The anchor of every schedule slot of this workflow."""
    plugin_id: str | None = Field(default=None, sa_type=ID)
    created_at: datetime = Field(sa_type=MOMENT, sa_column_kwargs={"server_default": text(NOW)})
    updated_at: datetime = Field(sa_type=MOMENT, sa_column_kwargs={"server_default": text(NOW)})
    deleted_at: datetime | None = Field(default=None, sa_type=MOMENT)
    releasing: bool = Field(default=False, sa_column_kwargs={"server_default": text("false")})
    """Enabled again, and runs that it held back may still be paused: the workers' sweep lets them go, a page at a time."""


class WorkflowRevision(SQLModel, table=True):
    """One immutable definition: its canonical bytes as text, and their SHA-256 in hex (lifecycle.md, decision 6)."""

    __tablename__ = "workflow_revisions"
    __table_args__ = (
        ForeignKeyConstraint(["realm_id", "workflow_id"], ["workflows.realm_id", "workflows.id"], ondelete="CASCADE"),
        ForeignKeyConstraint(["realm_id", "author_id"], ["users.realm_id", "users.id"]),
        CheckConstraint(
            one_of("status", "draft", "approved", "rejected", "published", "superseded"), name="status_is_known"
        ),
        CheckConstraint("number >= 1", name="numbered_from_one"),
        CheckConstraint("definition_hash ~ '^[0-9a-f]{64}$'", name="hash_is_sha256"),
        Index(
            "workflow_revisions_one_published",
            "realm_id",
            "workflow_id",
            unique=True,
            postgresql_where=text("status = 'published'"),
        ),
    )

    realm_id: str = Field(sa_type=ID, primary_key=True)
    workflow_id: str = Field(sa_type=ID, primary_key=True)
    number: int = Field(primary_key=True)
    id: str = Field(sa_type=ID)
    status: str = Field(default="draft", sa_type=WORD, sa_column_kwargs={"server_default": "draft"})
    definition: str = Field(sa_type=PROSE)
    definition_hash: str = Field(sa_type=WORD)
    author_id: str = Field(sa_type=ID)
    created_at: datetime = Field(sa_type=MOMENT, sa_column_kwargs={"server_default": text(NOW)})
    decided_by: str | None = Field(default=None, sa_type=ID)
    decided_at: datetime | None = Field(default=None, sa_type=MOMENT)
    published_by: str | None = Field(default=None, sa_type=ID)
    published_at: datetime | None = Field(default=None, sa_type=MOMENT)


class EventTrigger(SQLModel, table=True):
    """One event type a published workflow listens to. The key is what an event looks up: its realm and type."""

    __tablename__ = "event_triggers"
    __table_args__ = (
        ForeignKeyConstraint(["realm_id", "workflow_id"], ["workflows.realm_id", "workflows.id"], ondelete="CASCADE"),
        ForeignKeyConstraint(["realm_id", "organization_id"], ["organizations.realm_id", "organizations.id"]),
        Index("event_triggers_match", "realm_id", "event_type", "organization_id"),
    )

    realm_id: str = Field(sa_type=ID, primary_key=True)
    workflow_id: str = Field(sa_type=ID, primary_key=True)
    ordinal: int = Field(primary_key=True)
    event_type: str = Field(sa_type=WORD, primary_key=True)
    organization_id: str | None = Field(default=None, sa_type=ID)


class ScheduleTrigger(SQLModel, table=True):
    """One schedule of a published workflow: its next slot, or the slot being filled and the subject it got to."""

    __tablename__ = "schedule_triggers"
    __table_args__ = (
        ForeignKeyConstraint(["realm_id", "workflow_id"], ["workflows.realm_id", "workflows.id"], ondelete="CASCADE"),
        CheckConstraint("every_seconds BETWEEN 3600 AND 31536000", name="every_within_bounds"),
        CheckConstraint("slot_cursor IS NULL OR slot_at IS NOT NULL", name="cursor_has_a_slot"),
        Index("schedule_triggers_due", "next_slot_at"),
        Index("schedule_triggers_filling", "slot_at", postgresql_where=text("slot_at IS NOT NULL")),
    )

    realm_id: str = Field(sa_type=ID, primary_key=True)
    workflow_id: str = Field(sa_type=ID, primary_key=True)
    ordinal: int = Field(primary_key=True)
    every_seconds: int = Field(sa_type=BigInteger)
    selector: dict[str, Any] = Field(sa_type=DOCUMENT)
    next_slot_at: datetime = Field(sa_type=MOMENT)
    slot_at: datetime | None = Field(default=None, sa_type=MOMENT)
    """The slot being filled, if one is: its population is not covered yet."""
    slot_cursor: str | None = Field(default=None, sa_type=ID)
    slot_started: int = Field(default=0, sa_column_kwargs={"server_default": text("0")})
    slot_missed: int = Field(default=0, sa_column_kwargs={"server_default": text("0")})
    """Slots before it that nobody fired."""
