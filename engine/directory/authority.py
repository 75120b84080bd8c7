"""What a user may do, and the ceiling on what a user may give (lifecycle.md, "Authority").

Role ceiling: the actor may assign roles at that scope, and holds every permission of the role at a scope that covers it.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.core.errors import Refused
from engine.directory.facts import Facts, Key, RoleFact
from engine.directory.permissions import any_covers


@dataclass(frozen=True, slots=True)
class Authority:
    """The permissions a user holds now: realm-wide (scope None) and in single organizations."""

    grants: tuple[tuple[str | None, frozenset[str]], ...]

    def holds(self, permission: str, organization_id: str | None = None) -> bool:
        """Whether the permission is held realm-wide, or in the organization when one is named."""
        return any(
            (scope is None or scope == organization_id) and any_covers(permissions, permission)
            for scope, permissions in self.grants
        )


NOBODY = Authority(())


def authority_of(facts: Facts, user: Key) -> Authority:
    """The authority of a user, from live assignments and live group memberships. A user who is not active has none."""
    fact = facts.users.get(user)
    if fact is None or fact.state != "active":
        return NOBODY
    realm_id = user[0]
    grants: list[tuple[str | None, frozenset[str]]] = []
    for assignment in facts.assignments.get(user, {}).values():
        role = facts.roles.get((realm_id, assignment.role_id))
        if role is not None and facts.live(assignment.expires_at):
            grants.append((assignment.organization_id, role.permissions))
    for member in facts.group_members.get(user, {}).values():
        if facts.live(member.expires_at):
            grants += [
                (member.organization_id, role.permissions) for role in facts.granted_by((realm_id, member.group_id))
            ]
    return Authority(tuple(grants))


def require(authority: Authority, permission: str, organization_id: str | None = None) -> None:
    """Raise Refused(`forbidden`) unless the permission is held."""
    if not authority.holds(permission, organization_id):
        where = f" in {organization_id}" if organization_id else ""
        raise Refused("forbidden", f"this needs the permission {permission}{where}")


def require_ceiling(authority: Authority, role: RoleFact, scope: str, organization_id: str | None) -> None:
    """Raise Refused (`forbidden`, `grant_ceiling_exceeded`) unless the role may be given by this authority at that scope.

    `organization_id` is None for the realm, and also for "whatever organization it will be": then realm-wide authority over
    organizations is needed.
    """
    require(authority, "realm.roles.assign" if scope == "realm" else "org.roles.assign", organization_id)
    for permission in sorted(role.permissions):
        if not authority.holds(permission, organization_id):
            raise Refused(
                "grant_ceiling_exceeded", f"the role {role.id} has {permission}, which its giver does not hold"
            )


def require_group_ceiling(authority: Authority, facts: Facts, group: Key, organization_id: str | None) -> None:
    """Raise Refused unless membership of the group may be changed: `org.groups.write` and the ceiling of all it grants."""
    require(authority, "org.groups.write", organization_id)
    for role in facts.granted_by(group):
        require_ceiling(authority, role, "organization", organization_id)
