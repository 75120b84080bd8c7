"""Roles and the assignments that give them to users."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import CheckConstraint, ForeignKeyConstraint, Index, UniqueConstraint, text
from sqlmodel import Field, SQLModel

from db.tables.columns import ID, MOMENT, NOW, PROSE, WORD, WORDS, one_of


class Role(SQLModel, table=True):
    """A named set of permissions that may be given in a realm or in an organization (its boundary)."""

    __tablename__ = "roles"
    __table_args__ = (
        ForeignKeyConstraint(["realm_id"], ["realms.id"]),
        UniqueConstraint("realm_id", "name"),
        CheckConstraint(one_of("boundary", "realm", "organization"), name="boundary_is_known"),
    )

    realm_id: str = Field(sa_type=ID, primary_key=True)
    id: str = Field(sa_type=ID, primary_key=True)
    name: str = Field(sa_type=PROSE)
    boundary: str = Field(sa_type=WORD)
    permissions: list[str] = Field(sa_type=WORDS)
    requires_approval: bool = Field(default=False, sa_column_kwargs={"server_default": text("false")})
    built_in: bool = Field(default=False, sa_column_kwargs={"server_default": text("false")})
    created_at: datetime = Field(sa_type=MOMENT, sa_column_kwargs={"server_default": text(NOW)})


class RoleAssignment(SQLModel, table=True):
    """A role held by a user, in the realm or in one organization, for ever or until it expires.

    `step_key` is the idempotency key of the workflow step that made it (`<run>.<step>`): unique, so no step can grant twice,
    and cleared as soon as a person changes the assignment, so that an undo leaves that change alone.
    """

    __tablename__ = "role_assignments"
    __table_args__ = (
        ForeignKeyConstraint(["realm_id", "role_id"], ["roles.realm_id", "roles.id"]),
        ForeignKeyConstraint(["realm_id", "user_id"], ["users.realm_id", "users.id"]),
        ForeignKeyConstraint(
            ["realm_id", "organization_id", "user_id"],
            ["memberships.realm_id", "memberships.organization_id", "memberships.user_id"],
        ),
        CheckConstraint(
            "(scope = 'realm' AND organization_id IS NULL) OR (scope = 'organization' AND organization_id IS NOT NULL)",
            name="scope_has_its_organization",
        ),
        Index(
            "role_assignments_once",
            "realm_id",
            "user_id",
            "role_id",
            "organization_id",
            unique=True,
            postgresql_nulls_not_distinct=True,
        ),
        Index("role_assignments_of_role", "realm_id", "role_id", "user_id"),
        Index(
            "role_assignments_of_organization",
            "realm_id",
            "organization_id",
            "role_id",
            postgresql_where=text("organization_id IS NOT NULL"),
        ),
        Index("role_assignments_expiring", "expires_at", postgresql_where=text("expires_at IS NOT NULL")),
        Index(
            "role_assignments_step_key",
            "realm_id",
            "step_key",
            unique=True,
            postgresql_where=text("step_key IS NOT NULL"),
        ),
    )

    realm_id: str = Field(sa_type=ID, primary_key=True)
    id: str = Field(sa_type=ID, primary_key=True)
    role_id: str = Field(sa_type=ID)
    user_id: str = Field(sa_type=ID)
    scope: str = Field(sa_type=WORD)
    organization_id: str | None = Field(default=None, sa_type=ID)
    granted_at: datetime = Field(sa_type=MOMENT, sa_column_kwargs={"server_default": text(NOW)})
    granted_by: str | None = Field(default=None, sa_type=ID)
    expires_at: datetime | None = Field(default=None, sa_type=MOMENT)
    step_key: str | None = Field(default=None, sa_type=ID)
