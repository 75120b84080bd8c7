"""Users, as they are read. A deleted one is history, and is not there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Row, func, select

from db.statements.reads_pages import newest
from db.tables import User, table

users = table(User)

_there = select(users).where(users.c.state != "deleted")


def users_page(
    connection: Connection,
    realm_id: str,
    after: str | None,
    limit: int,
    *,
    state: str | None = None,
    kind: str | None = None,
    email: str | None = None,
) -> Sequence[Row[Any]]:
    """Users of a realm, the newest first."""
    statement = _there.where(users.c.realm_id == realm_id)
    if state is not None:
        statement = statement.where(users.c.state == state)
    if kind is not None:
        statement = statement.where(users.c.kind == kind)
    if email is not None:
        statement = statement.where(func.lower(users.c.email) == func.lower(email))
    return newest(connection, statement, users.c.id, after, limit)


def user(connection: Connection, realm_id: str, user_id: str) -> Row[Any] | None:
    """A user."""
    return connection.execute(_there.where(users.c.realm_id == realm_id, users.c.id == user_id)).one_or_none()
