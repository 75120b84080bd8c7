"""What a definition refers to, as it stands in the realm: one statement a kind. Nothing is locked; run time checks again.

Each answers only for what exists in the realm, so an id of another realm is missing exactly as one that was never made.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from sqlalchemy import ARRAY, Connection, Select, Table, Text, any_, bindparam, select

from db.tables import Group, Organization, Role, User, WebhookSubscription, table

roles = table(Role)
groups = table(Group)
users = table(User)
organizations = table(Organization)
subscriptions = table(WebhookSubscription)

_REALM = bindparam("realm_id", type_=Text)
_IDS = bindparam("ids", type_=ARRAY(Text))

_roles = select(roles.c.id, roles.c.boundary).where(roles.c.realm_id == _REALM, roles.c.id == any_(_IDS))
_groups = select(groups.c.id, groups.c.organization_id).where(groups.c.realm_id == _REALM, groups.c.id == any_(_IDS))


def _existing(of: Table) -> Select[str]:
    return select(of.c.id).where(of.c.realm_id == _REALM, of.c.id == any_(_IDS))


_approvers = _existing(users).where(users.c.state == "active", users.c.kind == "member")
_organizations = _existing(organizations).where(organizations.c.state == "active")
_subscriptions = _existing(subscriptions).where(
    subscriptions.c.state != "deleted", subscriptions.c.organization_id.is_(None)
)


def role_boundaries(connection: Connection, realm_id: str, ids: Collection[str]) -> Mapping[str, str]:
    """Boundary by role."""
    return _pairs(connection, _roles, realm_id, ids)


def group_organizations(connection: Connection, realm_id: str, ids: Collection[str]) -> Mapping[str, str]:
    """Organization by group."""
    return _pairs(connection, _groups, realm_id, ids)


def possible_approvers(connection: Connection, realm_id: str, ids: Collection[str]) -> frozenset[str]:
    """Those users that are active and not guests."""
    return _found(connection, _approvers, realm_id, ids)


def active_organizations(connection: Connection, realm_id: str, ids: Collection[str]) -> frozenset[str]:
    """Those organizations that are active."""
    return _found(connection, _organizations, realm_id, ids)


def callable_subscriptions(connection: Connection, realm_id: str, ids: Collection[str]) -> frozenset[str]:
    """Those subscriptions that are realm-wide and not deleted, in whatever other state."""
    return _found(connection, _subscriptions, realm_id, ids)


def _pairs(
    connection: Connection, statement: Select[str, str], realm_id: str, ids: Collection[str]
) -> Mapping[str, str]:
    found = connection.execute(statement, {"realm_id": realm_id, "ids": sorted(ids)})
    return {row[0]: row[1] for row in found}


def _found(connection: Connection, statement: Select[str], realm_id: str, ids: Collection[str]) -> frozenset[str]:
    return frozenset(connection.execute(statement, {"realm_id": realm_id, "ids": sorted(ids)}).scalars())
