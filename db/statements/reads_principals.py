"""Service principals, as they are read, with the roles they hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Row, Select, func, select
from sqlalchemy.types import ARRAY

from db.statements.reads_pages import newest
from db.tables import ServicePrincipal, ServicePrincipalRole, table
from db.tables.columns import ID

principals = table(ServicePrincipal)
roles = table(ServicePrincipalRole)

_held = (
    select(roles.c.role_id)
    .where(roles.c.realm_id == principals.c.realm_id, roles.c.service_principal_id == principals.c.id)
    .order_by(roles.c.role_id)
    .scalar_subquery()
)
_shown: Select[Any] = select(principals, func.array(_held, type_=ARRAY(ID)).label("role_ids"))


def principals_page(
    connection: Connection, realm_id: str, after: str | None, limit: int, *, state: str | None = None
) -> Sequence[Row[Any]]:
    """Service principals of a realm, the newest first."""
    statement = _shown.where(principals.c.realm_id == realm_id)
    if state is not None:
        statement = statement.where(principals.c.state == state)
    return newest(connection, statement, principals.c.id, after, limit)


def principal(connection: Connection, realm_id: str, principal_id: str) -> Row[Any] | None:
    """A service principal."""
    return connection.execute(
        _shown.where(principals.c.realm_id == realm_id, principals.c.id == principal_id)
    ).one_or_none()
