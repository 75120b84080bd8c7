"""Groups of an organization, the roles they grant, and their members."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import CheckConstraint, ForeignKeyConstraint, Index, UniqueConstraint, text
from sqlmodel import Field, SQLModel

from db.tables.columns import ID, MOMENT, NOW, PROSE


class Group(SQLModel, table=True):
    """A group of one organization. Its members hold its roles and those of all its ancestors, in that organization."""

    __tablename__ = "groups"
    __table_args__ = (
        ForeignKeyConstraint(["realm_id", "organization_id"], ["organizations.realm_id", "organizations.id"]),
        ForeignKeyConstraint(
            ["realm_id", "organization_id", "parent_id"], ["groups.realm_id", "groups.organization_id", "groups.id"]
        ),
        UniqueConstraint("realm_id", "organization_id", "id"),
        UniqueConstraint("realm_id", "organization_id", "name"),
        CheckConstraint("parent_id IS DISTINCT FROM id", name="not_its_own_parent"),
        Index("groups_of_parent", "realm_id", "parent_id", postgresql_where=text("parent_id IS NOT NULL")),
    )

    realm_id: str = Field(sa_type=ID, primary_key=True)
    id: str = Field(sa_type=ID, primary_key=True)
    organization_id: str = Field(sa_type=ID)
    parent_id: str | None = Field(default=None, sa_type=ID)
    name: str = Field(sa_type=PROSE)
    created_at: datetime = Field(sa_type=MOMENT, sa_column_kwargs={"server_default": text(NOW)})


class GroupRole(SQLModel, table=True):
    """A role (boundary `organization`) that a group gives its members, in the group's organization."""

    __tablename__ = "group_roles"
    __table_args__ = (
        ForeignKeyConstraint(["realm_id", "group_id"], ["groups.realm_id", "groups.id"], ondelete="CASCADE"),
        ForeignKeyConstraint(["realm_id", "role_id"], ["roles.realm_id", "roles.id"]),
        Index("group_roles_of_role", "realm_id", "role_id"),
    )

    realm_id: str = Field(sa_type=ID, primary_key=True)
    group_id: str = Field(sa_type=ID, primary_key=True)
    role_id: str = Field(sa_type=ID, primary_key=True)


class GroupMember(SQLModel, table=True):
    """A user's place in a group, for ever or until it expires. `step_key` as in role assignments."""

    __tablename__ = "group_members"
    __table_args__ = (
        ForeignKeyConstraint(
            ["realm_id", "organization_id", "group_id"],
            ["groups.realm_id", "groups.organization_id", "groups.id"],
        ),
        ForeignKeyConstraint(
            ["realm_id", "organization_id", "user_id"],
            ["memberships.realm_id", "memberships.organization_id", "memberships.user_id"],
        ),
        Index("group_members_of_user", "realm_id", "user_id"),
        Index("group_members_expiring", "expires_at", postgresql_where=text("expires_at IS NOT NULL")),
        Index(
            "group_members_step_key",
            "realm_id",
            "step_key",
            unique=True,
            postgresql_where=text("step_key IS NOT NULL"),
        ),
    )

    realm_id: str = Field(sa_type=ID, primary_key=True)
    group_id: str = Field(sa_type=ID, primary_key=True)
    user_id: str = Field(sa_type=ID, primary_key=True)
    organization_id: str = Field(sa_type=ID)
    joined_at: datetime = Field(sa_type=MOMENT, sa_column_kwargs={"server_default": text(NOW)})
    added_by: str | None = Field(default=None, sa_type=ID)
    expires_at: datetime | None = Field(default=None, sa_type=MOMENT)
    step_key: str | None = Field(default=None, sa_type=ID)
