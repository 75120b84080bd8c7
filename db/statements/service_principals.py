"""Service principals: one at a time, and what they hold. The row is the lock of its roles."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Literal

from sqlalchemy import Connection, any_, bindparam, select
from sqlalchemy.types import ARRAY

from db.tables import ServicePrincipal, ServicePrincipalRole, table
from db.tables.columns import ID

principals = table(ServicePrincipal)
roles = table(ServicePrincipalRole)

_state = select(principals.c.state).where(
    principals.c.realm_id == bindparam("of_realm", type_=ID), principals.c.id == bindparam("principal", type_=ID)
)
_locked = {"change": _state.with_for_update(key_share=True), "share": _state.with_for_update(read=True)}


def lock_principal(
    connection: Connection, realm_id: str, principal_id: str, lock: Literal["change", "share"]
) -> str | None:
    """The state of a service principal, locked FOR NO KEY UPDATE (`change`) or FOR SHARE (`share`). None: there is none."""
    return connection.execute(_locked[lock], {"of_realm": realm_id, "principal": principal_id}).scalar_one_or_none()


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


def insert_principal(connection: Connection, values: Mapping[str, Any]) -> None:
    """A new service principal."""
    connection.execute(principals.insert().values(values))


def update_principal(connection: Connection, realm_id: str, principal_id: str, values: Mapping[str, Any]) -> None:
    """Change columns of a service principal that the caller has locked."""
    connection.execute(
        principals.update().where(principals.c.realm_id == realm_id, principals.c.id == principal_id).values(**values)
    )


def give_roles(connection: Connection, realm_id: str, principal_id: str, role_ids: Collection[str]) -> None:
    """Let it hold these roles too."""
    if role_ids:
        connection.execute(
            roles.insert(),
            [{"realm_id": realm_id, "service_principal_id": principal_id, "role_id": role_id} for role_id in role_ids],
        )


_take = roles.delete().where(
    roles.c.realm_id == bindparam("of_realm", type_=ID),
    roles.c.service_principal_id == bindparam("principal", type_=ID),
    roles.c.role_id == any_(bindparam("role_ids", type_=ARRAY(ID))),
)


def take_roles(connection: Connection, realm_id: str, principal_id: str, role_ids: Collection[str]) -> None:
    """Let it hold these roles no longer."""
    connection.execute(_take, {"of_realm": realm_id, "principal": principal_id, "role_ids": sorted(role_ids)})
