"""Organizations and memberships, as they are read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Row, select

from db.statements.reads_pages import newest
from db.tables import Membership, Organization, table

organizations = table(Organization)
memberships = table(Membership)


def organizations_page(
    connection: Connection, realm_id: str, after: str | None, limit: int, *, state: str | None = None
) -> Sequence[Row[Any]]:
    """Organizations of a realm, the newest first."""
    statement = select(organizations).where(organizations.c.realm_id == realm_id)
    if state is not None:
        statement = statement.where(organizations.c.state == state)
    return newest(connection, statement, organizations.c.id, after, limit)


def organization(connection: Connection, realm_id: str, organization_id: str) -> Row[Any] | None:
    """An organization."""
    return connection.execute(
        select(organizations).where(organizations.c.realm_id == realm_id, organizations.c.id == organization_id)
    ).one_or_none()


def members_page(
    connection: Connection, realm_id: str, organization_id: str, after: str | None, limit: int
) -> Sequence[Row[Any]]:
    """Members of an organization, the newest users first."""
    statement = select(memberships).where(
        memberships.c.realm_id == realm_id, memberships.c.organization_id == organization_id
    )
    return newest(connection, statement, memberships.c.user_id, after, limit)


def membership(connection: Connection, realm_id: str, organization_id: str, user_id: str) -> Row[Any] | None:
    """A membership."""
    return connection.execute(
        select(memberships).where(
            memberships.c.realm_id == realm_id,
            memberships.c.organization_id == organization_id,
            memberships.c.user_id == user_id,
        )
    ).one_or_none()
