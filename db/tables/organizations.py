"""Organizations and the memberships of their users."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import CheckConstraint, ForeignKeyConstraint, Index, UniqueConstraint, text
from sqlmodel import Field, SQLModel

from db.tables.columns import ID, MOMENT, NOW, PROSE, WORD, one_of


class Organization(SQLModel, table=True):
    """A part of a realm that has members, groups and roles of its own."""

    __tablename__ = "organizations"
    __table_args__ = (
        ForeignKeyConstraint(["realm_id"], ["realms.id"]),
        UniqueConstraint("realm_id", "name"),
        CheckConstraint(one_of("state", "active", "archived"), name="state_is_known"),
    )

    realm_id: str = Field(sa_type=ID, primary_key=True)
    id: str = Field(sa_type=ID, primary_key=True)
    name: str = Field(sa_type=PROSE)
    state: str = Field(default="active", sa_type=WORD, sa_column_kwargs={"server_default": "active"})
    created_at: datetime = Field(sa_type=MOMENT, sa_column_kwargs={"server_default": text(NOW)})


class Membership(SQLModel, table=True):
    """A user's place in an organization. Groups and organization roles hang on it by foreign key."""

    __tablename__ = "memberships"
    __table_args__ = (
        ForeignKeyConstraint(["realm_id", "organization_id"], ["organizations.realm_id", "organizations.id"]),
        ForeignKeyConstraint(["realm_id", "user_id"], ["users.realm_id", "users.id"]),
        Index("memberships_of_user", "realm_id", "user_id"),
    )

    realm_id: str = Field(sa_type=ID, primary_key=True)
    organization_id: str = Field(sa_type=ID, primary_key=True)
    user_id: str = Field(sa_type=ID, primary_key=True)
    joined_at: datetime = Field(sa_type=MOMENT, sa_column_kwargs={"server_default": text(NOW)})
