"""Messages: notices queued by `notify` steps, one a recipient, delivered over SMTP."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import BigInteger, CheckConstraint, ForeignKeyConstraint, Index, UniqueConstraint, text
from sqlmodel import Field, SQLModel

from db.tables.columns import ID, MOMENT, NOW, PROSE, WORD, one_of


class Message(SQLModel, table=True):
    """One notice for one user. Address and wording are looked up when it is sent: the row holds ids and a code."""

    __tablename__ = "messages"
    __table_args__ = (
        ForeignKeyConstraint(["realm_id", "recipient_id"], ["users.realm_id", "users.id"]),
        ForeignKeyConstraint(["realm_id", "workflow_id"], ["workflows.realm_id", "workflows.id"], ondelete="CASCADE"),
        UniqueConstraint("realm_id", "step_key", "recipient_id", name="messages_once"),
        CheckConstraint(one_of("state", "queued", "sent", "failed"), name="state_is_known"),
        CheckConstraint("(state = 'queued') = (ended_at IS NULL)", name="ended_has_a_moment"),
        CheckConstraint("(state = 'queued') = (due_at IS NOT NULL)", name="queued_is_due"),
        Index("messages_due", "due_at", postgresql_where=text("due_at IS NOT NULL")),
        Index("messages_ended", "ended_at", postgresql_where=text("ended_at IS NOT NULL")),
    )

    realm_id: str = Field(sa_type=ID, primary_key=True)
    id: str = Field(sa_type=ID, primary_key=True)
    run_id: str = Field(sa_type=ID)
    workflow_id: str = Field(sa_type=ID)
    step_key: str = Field(sa_type=ID)
    recipient_id: str = Field(sa_type=ID)
    notice: str = Field(sa_type=WORD)
    state: str = Field(default="queued", sa_type=WORD, sa_column_kwargs={"server_default": "queued"})
    attempts: int = Field(default=0, sa_column_kwargs={"server_default": text("0")})
    fence: int = Field(default=0, sa_type=BigInteger, sa_column_kwargs={"server_default": text("0")})
    last_error: str | None = Field(default=None, sa_type=PROSE)
    created_at: datetime = Field(sa_type=MOMENT, sa_column_kwargs={"server_default": text(NOW)})
    due_at: datetime | None = Field(default=None, sa_type=MOMENT, sa_column_kwargs={"server_default": text(NOW)})
    ended_at: datetime | None = Field(default=None, sa_type=MOMENT)
