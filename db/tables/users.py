"""Users. The row is also the lock of all that its user holds: whoever changes an assignment or a membership of a user locks
the user's row first (FOR NO KEY UPDATE), and whoever relies on what a user holds locks it FOR SHARE."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import CheckConstraint, ForeignKeyConstraint, Index, text
from sqlmodel import Field, SQLModel

from db.tables.columns import ID, MOMENT, NOW, PROSE, WORD, one_of


class User(SQLModel, table=True):
    """A person of a realm. Deleted users stay as a row: runs about them keep their id until those are purged."""

    __tablename__ = "users"
    __table_args__ = (
        ForeignKeyConstraint(["realm_id"], ["realms.id"]),
        CheckConstraint(one_of("kind", "member", "guest"), name="kind_is_known"),
        CheckConstraint(one_of("state", "active", "suspended", "deleted"), name="state_is_known"),
        CheckConstraint("(state = 'suspended') = (suspended_at IS NOT NULL)", name="suspended_has_a_moment"),
        Index(
            "users_email", "realm_id", text("lower(email)"), unique=True, postgresql_where=text("state <> 'deleted'")
        ),
    )

    realm_id: str = Field(sa_type=ID, primary_key=True)
    id: str = Field(sa_type=ID, primary_key=True)
    email: str = Field(sa_type=PROSE)
    display_name: str = Field(sa_type=PROSE)
    kind: str = Field(default="member", sa_type=WORD, sa_column_kwargs={"server_default": "member"})
    state: str = Field(default="active", sa_type=WORD, sa_column_kwargs={"server_default": "active"})
    created_at: datetime = Field(sa_type=MOMENT, sa_column_kwargs={"server_default": text(NOW)})
    updated_at: datetime = Field(sa_type=MOMENT, sa_column_kwargs={"server_default": text(NOW)})
    last_active_at: datetime | None = Field(default=None, sa_type=MOMENT)
    suspended_at: datetime | None = Field(default=None, sa_type=MOMENT)
