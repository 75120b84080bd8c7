"""Verbs on groups: create, place under a parent, give roles, take in and let go of members."""

from __future__ import annotations

from datetime import datetime

from engine.core import ids
from engine.core.errors import Refused
from engine.core.trail import Cause, audit, by_the_clock, event
from engine.directory.effects import (
    DELETE_GROUP_MEMBER,
    INSERT_GROUP,
    INSERT_GROUP_MEMBER,
    INSERT_GROUP_ROLE,
    Effect,
)
from engine.directory.facts import Facts, GroupFact, GroupMemberFact, Key
from engine.directory.roles import require_active


def existing_group(facts: Facts, group: Key) -> GroupFact:
    """The group. Raises Refused(`group_missing`)."""
    fact = facts.groups.get(group)
    if fact is None:
        raise Refused("group_missing", "this group does not exist", "group_id")
    return fact


def create_group(facts: Facts, cause: Cause, organization_id: str, name: str, parent_id: str | None = None) -> Effect:
    """A new group of an organization, under a parent of the same organization if one is named."""
    require_active(facts, (cause.realm_id, organization_id))
    if parent_id is not None:
        parent = facts.groups.get((cause.realm_id, parent_id))
        if parent is None or parent.organization_id != organization_id:
            raise Refused("not_found", "this group does not exist in the organization", "parent_id")
    group_id = ids.new(ids.Prefix.GROUP)
    details = {"organization_id": organization_id, "parent_id": parent_id}
    return Effect(
        True,
        [
            INSERT_GROUP(
                realm_id=cause.realm_id, id=group_id, organization_id=organization_id, parent_id=parent_id, name=name
            ),
            audit(cause, "group.created", ("group", group_id), details),
        ],
        {"group_id": group_id},
    )


def give_role(facts: Facts, cause: Cause, group: Key, role_id: str) -> Effect:
    """Let a group grant a role of boundary `organization` to its members. The ceiling is the caller's to check."""
    fact = facts.groups.get(group)
    role = facts.roles.get((group[0], role_id))
    if fact is None or role is None:
        raise Refused("not_found", "this group or role does not exist", "group_id" if fact is None else "role_id")
    if role.boundary != "organization":
        raise Refused("validation_failed", "the role is not one of boundary organization", "role_id")
    if role.requires_approval or role.owns_organization:
        raise Refused("conflict", "the role is given to a person by name, never through a group", "role_id")
    if role_id in fact.role_ids:
        return Effect(False)
    return Effect(
        True,
        [
            INSERT_GROUP_ROLE(realm_id=group[0], group_id=group[1], role_id=role_id),
            audit(cause, "group.role.added", ("group", group[1]), {"role_id": role_id}),
        ],
    )


def add_member(
    facts: Facts,
    cause: Cause,
    user: Key,
    group_id: str,
    *,
    expires_at: datetime | None = None,
    step_key: str | None = None,
) -> Effect:
    """Take a member of the group's organization into the group. In it already: unchanged.

    Raises Refused (`group_missing`, `not_found`, `conflict`, `not_a_member`).
    """
    realm_id, user_id = user
    group = existing_group(facts, (realm_id, group_id))
    subject = facts.users.get(user)
    if subject is None or not subject.can_be_subject:
        raise Refused("not_found", "this user does not exist", "user_id")
    require_active(facts, (realm_id, group.organization_id))
    if not facts.is_member(user, group.organization_id):
        raise Refused("not_a_member", "the user is not a member of the group's organization", "user_id")
    if expires_at is not None and expires_at <= facts.now:
        raise Refused("validation_failed", "the expiry lies in the past", "expires_at")
    held = facts.group_member(user, group_id)
    if held is not None and facts.live(held.expires_at):
        return Effect(False)
    rows = [] if held is None else list(expire_member(facts, by_the_clock(cause), user, held).rows)
    facts.group_members.setdefault(user, {})[group_id] = GroupMemberFact(
        group_id, user_id, group.organization_id, expires_at, step_key
    )
    details = {
        "group_id": group_id,
        "organization_id": group.organization_id,
        "expires_at": None if expires_at is None else expires_at.isoformat(),
    }
    rows += [
        INSERT_GROUP_MEMBER(
            realm_id=realm_id,
            group_id=group_id,
            user_id=user_id,
            organization_id=group.organization_id,
            added_by=cause.actor_id,
            expires_at=expires_at,
            step_key=step_key,
        ),
        audit(cause, "group.membership.added", ("user", user_id), details),
        event(cause, "group.membership.added", user_id, group.organization_id, details),
    ]
    return Effect(True, rows)


def remove_member(facts: Facts, cause: Cause, user: Key, group_id: str) -> Effect:
    """Let a member go. Not in the group: unchanged."""
    held = facts.group_member(user, group_id)
    if held is None or not facts.live(held.expires_at):
        return Effect(False)
    return end_member(facts, cause, user, held)


def end_member(facts: Facts, cause: Cause, user: Key, held: GroupMemberFact) -> Effect:
    """End a group membership that is there."""
    return _end(facts, cause, user, held, "removed")


def expire_member(facts: Facts, cause: Cause, user: Key, held: GroupMemberFact) -> Effect:
    """End a group membership whose time is over; for the realm's events it is a removal like any other."""
    return _end(facts, cause, user, held, "expired")


def _end(facts: Facts, cause: Cause, user: Key, held: GroupMemberFact, reason: str) -> Effect:
    facts.group_members[user].pop(held.group_id, None)
    details = {"group_id": held.group_id, "organization_id": held.organization_id, "reason": reason}
    return Effect(
        True,
        [
            DELETE_GROUP_MEMBER(realm_id=user[0], group_id=held.group_id, user_id=user[1]),
            audit(cause, "group.membership.removed", ("user", user[1]), details),
            event(cause, "group.membership.removed", user[1], held.organization_id, details),
        ],
    )
