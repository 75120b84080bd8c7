"""What a user or a service principal may do at this moment, in one statement that locks nothing: for answering questions.

What changes something asks again under locks, for authority may go between this answer and the commit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Row,
    Select,
    bindparam,
    func,
    null,
    or_,
    select,
    true,
    union_all,
)

from db.tables import (
    Group,
    GroupMember,
    GroupRole,
    Role,
    RoleAssignment,
    ServicePrincipal,
    ServicePrincipalRole,
    User,
    table,
)
from db.tables.columns import ID

users = table(User)
roles = table(Role)
assignments = table(RoleAssignment)
groups = table(Group)
group_members = table(GroupMember)
group_roles = table(GroupRole)
principals = table(ServicePrincipal)
principal_roles = table(ServicePrincipalRole)

_realm = bindparam("realm_id", type_=ID)
_user = bindparam("user_id", type_=ID)


def _live(expires_at: Column[Any]) -> ColumnElement[bool]:
    return or_(expires_at.is_(None), expires_at > func.clock_timestamp())


_lineage = (
    select(group_members.c.organization_id, groups.c.id, groups.c.parent_id)
    .join(groups, (groups.c.realm_id == group_members.c.realm_id) & (groups.c.id == group_members.c.group_id))
    .where(group_members.c.realm_id == _realm, group_members.c.user_id == _user, _live(group_members.c.expires_at))
    .cte("lineage", recursive=True)
)
_lineage = _lineage.union(
    select(_lineage.c.organization_id, groups.c.id, groups.c.parent_id).join(
        groups, (groups.c.realm_id == _realm) & (groups.c.id == _lineage.c.parent_id)
    )
)
_through_groups = (
    select(_lineage.c.organization_id, roles.c.permissions)
    .join(group_roles, (group_roles.c.realm_id == _realm) & (group_roles.c.group_id == _lineage.c.id))
    .join(roles, (roles.c.realm_id == _realm) & (roles.c.id == group_roles.c.role_id))
)
_direct = (
    select(assignments.c.organization_id, roles.c.permissions)
    .join(roles, (roles.c.realm_id == assignments.c.realm_id) & (roles.c.id == assignments.c.role_id))
    .where(assignments.c.realm_id == _realm, assignments.c.user_id == _user, _live(assignments.c.expires_at))
)
_grants = union_all(_direct, _through_groups).subquery("grants")
_standing: Select[Any] = (
    select(users.c.state, users.c.kind, _grants.c.organization_id, _grants.c.permissions)
    .outerjoin(_grants, true())
    .where(users.c.realm_id == _realm, users.c.id == _user)
)


def standing(connection: Connection, realm_id: str, user_id: str) -> Sequence[Row[Any]]:
    """A row for each role the user holds, directly or through groups, each with the user's state and kind; one row without
    permissions for a user who holds none; no row for one who does not exist."""
    return connection.execute(_standing, {"realm_id": realm_id, "user_id": user_id}).all()


_principal_standing: Select[Any] = (
    select(principals.c.state, null().label("organization_id"), roles.c.permissions)
    .outerjoin(
        principal_roles,
        (principal_roles.c.realm_id == principals.c.realm_id)
        & (principal_roles.c.service_principal_id == principals.c.id),
    )
    .outerjoin(roles, (roles.c.realm_id == principal_roles.c.realm_id) & (roles.c.id == principal_roles.c.role_id))
    .where(principals.c.realm_id == _realm, principals.c.id == bindparam("principal_id", type_=ID))
)


def principal_standing(connection: Connection, realm_id: str, principal_id: str) -> Sequence[Row[Any]]:
    """The same for a service principal, whose roles are realm-wide."""
    return connection.execute(_principal_standing, {"realm_id": realm_id, "principal_id": principal_id}).all()
