"""Service principals: one at a time, and what they hold. The row is the lock of its roles."""

from __future__ import annotations

from typing import Literal

from sqlalchemy import Connection, bindparam, select

from db.rows import AnyRow
from db.tables import ServicePrincipal, ServicePrincipalRole, table
from db.tables.columns import ID

principals = table(ServicePrincipal)
roles = table(ServicePrincipalRole)

_principal = select(principals.c.name, principals.c.state).where(
    principals.c.realm_id == bindparam("of_realm", type_=ID), principals.c.id == bindparam("principal", type_=ID)
)
_locked = {"change": _principal.with_for_update(key_share=True), "share": _principal.with_for_update(read=True)}


def lock_principal(
    connection: Connection, realm_id: str, principal_id: str, lock: Literal["change", "share"]
) -> AnyRow | None:
    """Name and state of a service principal, locked FOR NO KEY UPDATE (`change`) or FOR SHARE (`share`)."""
    return connection.execute(_locked[lock], {"of_realm": realm_id, "principal": principal_id}).one_or_none()


_held = (
    select(roles.c.role_id)
    .where(
        roles.c.realm_id == bindparam("of_realm", type_=ID),
        roles.c.service_principal_id == bindparam("principal", type_=ID),
    )
    .order_by(roles.c.role_id)
)


def roles_of(connection: Connection, realm_id: str, principal_id: str) -> list[str]:
    """The roles it holds. Stable while it is locked."""
    return list(connection.execute(_held, {"of_realm": realm_id, "principal": principal_id}).scalars())
