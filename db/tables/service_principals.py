"""Service principals: machines that call the API with a token of their own, and the realm-wide roles they hold."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import CheckConstraint, ForeignKeyConstraint, Index, UniqueConstraint, text
from sqlmodel import Field, SQLModel

from db.tables.columns import ID, MOMENT, NOW, PROSE, WORD, one_of


class ServicePrincipal(SQLModel, table=True):
    """A machine of a realm. The row is the lock of what it holds, as a user's is."""

    __tablename__ = "service_principals"
    __table_args__ = (
        ForeignKeyConstraint(["realm_id"], ["realms.id"]),
        UniqueConstraint("realm_id", "name"),
        CheckConstraint(one_of("state", "active", "disabled"), name="state_is_known"),
    )

    realm_id: str = Field(sa_type=ID, primary_key=True)
    id: str = Field(sa_type=ID, primary_key=True)
    name: str = Field(sa_type=PROSE)
    state: str = Field(default="active", sa_type=WORD, sa_column_kwargs={"server_default": "active"})
    created_by: str | None = Field(default=None, sa_type=ID)
    created_at: datetime = Field(sa_type=MOMENT, sa_column_kwargs={"server_default": text(NOW)})


class ServicePrincipalRole(SQLModel, table=True):
    """A role (boundary `realm`) that a service principal holds, realm-wide."""

    __tablename__ = "service_principal_roles"
    __table_args__ = (
        ForeignKeyConstraint(
            ["realm_id", "service_principal_id"],
            ["service_principals.realm_id", "service_principals.id"],
            ondelete="CASCADE",
        ),
        ForeignKeyConstraint(["realm_id", "role_id"], ["roles.realm_id", "roles.id"]),
        Index("service_principal_roles_of_role", "realm_id", "role_id"),
    )

    realm_id: str = Field(sa_type=ID, primary_key=True)
    service_principal_id: str = Field(sa_type=ID, primary_key=True)
    role_id: str = Field(sa_type=ID, primary_key=True)
