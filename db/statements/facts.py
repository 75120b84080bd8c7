"""Facts of the directory, for many users at once. Every statement that locks does so in the order of realm and id.

Lock order of the product: runs, workflows, users (in the order of their keys, whatever the mode), service principals, groups,
roles, organizations, approvals.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Literal

from sqlalchemy import Connection, func, literal_column, select, tuple_
from sqlalchemy.sql import Select

from db.rows import AnyRow
from db.statements.bulk import keys as keys_of
from db.statements.bulk import unnested
from db.tables import Group, GroupMember, GroupRole, Membership, Organization, Role, RoleAssignment, User, table
from db.tables.columns import ID

users = table(User)
organizations = table(Organization)
memberships = table(Membership)
roles = table(Role)
assignments = table(RoleAssignment)
groups = table(Group)
group_roles = table(GroupRole)
group_members = table(GroupMember)

Key = tuple[str, str]
Lock = Literal["change", "share"]

_keys = unnested({"realm_id": ID, "id": ID}, "wanted")


def _locked(statement: Select[Any], of: Any, lock: Lock) -> Select[Any]:
    return (
        statement.with_for_update(of=of, key_share=True)
        if lock == "change"
        else statement.with_for_update(of=of, read=True)
    )


_users = (
    select(users.c.realm_id, users.c.id, users.c.kind, users.c.state)
    .join(_keys, (users.c.realm_id == _keys.c.realm_id) & (users.c.id == _keys.c.id))
    .order_by(users.c.realm_id, users.c.id)
)
_users_locked = {"change": _locked(_users, users, "change"), "share": _locked(_users, users, "share")}


def lock_users(connection: Connection, keys: Collection[Key], lock: Lock) -> Sequence[AnyRow]:
    """Users by key, locked FOR NO KEY UPDATE (`change`) or FOR SHARE (`share`)."""
    return connection.execute(_users_locked[lock], keys_of(keys)).all()


_organizations = (
    select(organizations.c.realm_id, organizations.c.id, organizations.c.state)
    .join(_keys, (organizations.c.realm_id == _keys.c.realm_id) & (organizations.c.id == _keys.c.id))
    .order_by(organizations.c.realm_id, organizations.c.id)
)
_organizations_locked = {
    "change": _locked(_organizations, organizations, "change"),
    "share": _locked(_organizations, organizations, "share"),
}


def lock_organizations(connection: Connection, keys: Collection[Key], lock: Lock) -> Sequence[AnyRow]:
    """Organizations by key. `change` serializes what counts an organization's owners."""
    return connection.execute(_organizations_locked[lock], keys_of(keys)).all()


_memberships = select(memberships.c.realm_id, memberships.c.user_id, memberships.c.organization_id).join(
    _keys, (memberships.c.realm_id == _keys.c.realm_id) & (memberships.c.user_id == _keys.c.id)
)


def memberships_of(connection: Connection, keys: Collection[Key]) -> Sequence[AnyRow]:
    """Memberships of users. Stable while the users are locked."""
    return connection.execute(_memberships, keys_of(keys)).all()


_assignments = select(
    assignments.c.realm_id,
    assignments.c.id,
    assignments.c.user_id,
    assignments.c.role_id,
    assignments.c.scope,
    assignments.c.organization_id,
    assignments.c.expires_at,
    assignments.c.step_key,
).join(_keys, (assignments.c.realm_id == _keys.c.realm_id) & (assignments.c.user_id == _keys.c.id))
_assignments_shared = _assignments.order_by(assignments.c.realm_id, assignments.c.id).with_for_update(
    of=assignments, read=True
)


def assignments_of(connection: Connection, keys: Collection[Key]) -> Sequence[AnyRow]:
    """Role assignments of users, expired ones too. Stable while the users are locked."""
    return connection.execute(_assignments, keys_of(keys)).all()


def lock_assignments_of(connection: Connection, keys: Collection[Key]) -> Sequence[AnyRow]:
    """As `assignments_of`, and locked FOR SHARE: what authority rests on cannot go before the effect is committed."""
    return connection.execute(_assignments_shared, keys_of(keys)).all()


_group_members = select(
    group_members.c.realm_id,
    group_members.c.group_id,
    group_members.c.user_id,
    group_members.c.organization_id,
    group_members.c.expires_at,
    group_members.c.step_key,
).join(_keys, (group_members.c.realm_id == _keys.c.realm_id) & (group_members.c.user_id == _keys.c.id))


def group_members_of(connection: Connection, keys: Collection[Key]) -> Sequence[AnyRow]:
    """Group memberships of users, expired ones too. Stable while the users are locked."""
    return connection.execute(_group_members, keys_of(keys)).all()


_lineage = (
    select(groups.c.realm_id, groups.c.id, groups.c.parent_id)
    .join(_keys, (groups.c.realm_id == _keys.c.realm_id) & (groups.c.id == _keys.c.id))
    .cte("lineage", recursive=True)
)
_lineage = _lineage.union(
    select(groups.c.realm_id, groups.c.id, groups.c.parent_id).join(
        _lineage, (groups.c.realm_id == _lineage.c.realm_id) & (groups.c.id == _lineage.c.parent_id)
    )
)
_groups = (
    select(groups.c.realm_id, groups.c.id, groups.c.organization_id, groups.c.parent_id)
    .where(tuple_(groups.c.realm_id, groups.c.id).in_(select(_lineage.c.realm_id, _lineage.c.id)))
    .order_by(groups.c.realm_id, groups.c.id)
    .with_for_update(of=groups, read=True)
)


def lock_groups(connection: Connection, keys: Collection[Key]) -> Sequence[AnyRow]:
    """Groups and all their ancestors, FOR SHARE. What they grant is read under the lock (`roles_of_groups`)."""
    return connection.execute(_groups, keys_of(keys)).all()


_groups_changing = (
    select(groups.c.id)
    .join(_keys, (groups.c.realm_id == _keys.c.realm_id) & (groups.c.id == _keys.c.id))
    .order_by(groups.c.realm_id, groups.c.id)
    .with_for_update(of=groups, key_share=True)
)


def lock_groups_for_change(connection: Connection, keys: Collection[Key]) -> None:
    """Groups FOR NO KEY UPDATE, before what they grant is changed: nobody's authority rests on it meanwhile."""
    connection.execute(_groups_changing, keys_of(keys)).all()


_roles_of_groups = select(group_roles.c.realm_id, group_roles.c.group_id, group_roles.c.role_id).join(
    _keys, (group_roles.c.realm_id == _keys.c.realm_id) & (group_roles.c.group_id == _keys.c.id)
)


def roles_of_groups(connection: Connection, keys: Collection[Key]) -> Sequence[AnyRow]:
    """What groups grant by themselves. Stable while the groups are locked."""
    return connection.execute(_roles_of_groups, keys_of(keys)).all()


_roles = (
    select(
        roles.c.realm_id,
        roles.c.id,
        roles.c.name,
        roles.c.boundary,
        roles.c.permissions,
        roles.c.requires_approval,
        roles.c.built_in,
    )
    .join(_keys, (roles.c.realm_id == _keys.c.realm_id) & (roles.c.id == _keys.c.id))
    .order_by(roles.c.realm_id, roles.c.id)
    .with_for_update(of=roles, read=True)
)


def lock_roles(connection: Connection, keys: Collection[Key]) -> Sequence[AnyRow]:
    """Roles by key, FOR SHARE: their permissions cannot change before the effect is committed."""
    return connection.execute(_roles, keys_of(keys)).all()


_owners = (
    select(assignments.c.realm_id, assignments.c.organization_id, assignments.c.user_id, users.c.kind, users.c.state)
    .join(users, (users.c.realm_id == assignments.c.realm_id) & (users.c.id == assignments.c.user_id))
    .join(_keys, (assignments.c.realm_id == _keys.c.realm_id) & (assignments.c.organization_id == _keys.c.id))
    .join(roles, (roles.c.realm_id == assignments.c.realm_id) & (roles.c.id == assignments.c.role_id))
    .where(
        roles.c.built_in,
        roles.c.name == "org-owner",
        func.coalesce(assignments.c.expires_at > func.clock_timestamp(), literal_column("true")),
    )
)


def owners_of(connection: Connection, keys: Collection[Key]) -> Sequence[AnyRow]:
    """Who holds the owner role of organizations directly and now, with their kind and state (which are not locked). Stable
    while the organizations are locked for change."""
    return connection.execute(_owners, keys_of(keys)).all()
