"""Groups, by hand. Whoever changes a membership passes the ceiling of all that the group and its ancestors grant."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection

from engine.core.errors import Refused
from engine.core.trail import Cause, audit
from engine.directory import groups, roles
from engine.directory.authority import Authority, require_ceiling, require_group_ceiling
from engine.directory.commands.acting import act, allow
from engine.directory.effects import DELETE_GROUP_ROLE, Effect
from engine.directory.facts import Facts, GroupFact, Key, Wanted


def create(
    connection: Connection, cause: Cause, *, organization_id: str, name: str, parent_id: str | None = None
) -> str:
    """A new group of an organization. Returns the id. Needs `org.groups.write` there. Raises Refused (`forbidden`,
    `not_found`, `conflict`)."""
    wanted = Wanted(organizations={(cause.realm_id, organization_id)})
    if parent_id is not None:
        wanted.groups.add((cause.realm_id, parent_id))

    def command(facts: Facts, held: Authority) -> Effect:
        allow(held, "org.groups.write", organization_id)
        return groups.create_group(facts, cause, organization_id, name, parent_id)

    return str(act(connection, cause, wanted, command).result["group_id"])


def add_member(
    connection: Connection, cause: Cause, group_id: str, user_id: str, expires_at: datetime | None = None
) -> bool:
    """Take a member of the group's organization in. Returns whether the user was not in it before. Raises Refused
    (`not_found`, `forbidden`, `grant_ceiling_exceeded`, `not_a_member`, `conflict`, `validation_failed`)."""
    group, user = (cause.realm_id, group_id), (cause.realm_id, user_id)

    def command(facts: Facts, held: Authority) -> Effect:
        require_group_ceiling(held, facts, group, _existing(facts, group).organization_id)
        return groups.add_member(facts, cause, user, group_id, expires_at=expires_at)

    return act(connection, cause, Wanted(changing={user}, groups={group}), command).changed


def remove_member(connection: Connection, cause: Cause, group_id: str, user_id: str) -> None:
    """Let a member go. Raises Refused (`not_found`, `forbidden`, `grant_ceiling_exceeded`)."""
    group, user = (cause.realm_id, group_id), (cause.realm_id, user_id)

    def command(facts: Facts, held: Authority) -> Effect:
        require_group_ceiling(held, facts, group, _existing(facts, group).organization_id)
        effect = groups.remove_member(facts, cause, user, group_id)
        if not effect.changed:
            raise Refused("not_found", "this group membership does not exist")
        return effect

    act(connection, cause, Wanted(changing={user}, groups={group}), command)


def give_role(connection: Connection, cause: Cause, group_id: str, role_id: str) -> bool:
    """Let the group grant a role to all its members. Returns whether it did not before. Raises Refused (`not_found`,
    `forbidden`, `grant_ceiling_exceeded`, `validation_failed`, `conflict`).

    The group is locked for change: whoever was checked against its ceiling has committed before, or is checked anew.
    """
    group, role = (cause.realm_id, group_id), (cause.realm_id, role_id)

    def command(facts: Facts, held: Authority) -> Effect:
        organization_id = _existing(facts, group).organization_id
        allow(held, "org.groups.write", organization_id)
        require_ceiling(held, roles.existing_role(facts, role), "organization", organization_id)
        return groups.give_role(facts, cause, group, role_id)

    return act(connection, cause, Wanted(changing_groups={group}, roles={role}), command).changed


def take_role(connection: Connection, cause: Cause, group_id: str, role_id: str) -> None:
    """Let the group grant a role no longer. Raises Refused (`not_found`, `forbidden`, `grant_ceiling_exceeded`).

    The group is locked for change: whose authority rests on it has committed its effect before, or loses it.
    """
    group, role = (cause.realm_id, group_id), (cause.realm_id, role_id)

    def command(facts: Facts, held: Authority) -> Effect:
        fact = _existing(facts, group)
        allow(held, "org.groups.write", fact.organization_id)
        if role_id not in fact.role_ids:
            raise Refused("not_found", "this group does not grant this role")
        require_ceiling(held, roles.existing_role(facts, role), "organization", fact.organization_id)
        rows = [
            DELETE_GROUP_ROLE(realm_id=cause.realm_id, group_id=group_id, role_id=role_id),
            audit(cause, "group.role.removed", ("group", group_id), {"role_id": role_id}),
        ]
        return Effect(True, rows)

    act(connection, cause, Wanted(changing_groups={group}, roles={role}), command)


def _existing(facts: Facts, group: Key) -> GroupFact:
    fact = facts.groups.get(group)
    if fact is None:
        raise Refused("not_found", "this group does not exist")
    return fact
