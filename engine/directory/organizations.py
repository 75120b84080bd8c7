"""Verbs on organizations and memberships."""

from __future__ import annotations

from engine.core import ids
from engine.core.errors import Refused
from engine.core.trail import Cause, audit, event
from engine.directory import groups, roles
from engine.directory.effects import DELETE_MEMBERSHIP, INSERT_MEMBERSHIP, INSERT_ORGANIZATION, Effect
from engine.directory.facts import Facts, Key


def create_organization(cause: Cause, name: str) -> Effect:
    """A new, active organization."""
    organization_id = ids.new(ids.Prefix.ORGANIZATION)
    return Effect(
        True,
        [
            INSERT_ORGANIZATION(realm_id=cause.realm_id, id=organization_id, name=name),
            audit(cause, "organization.created", ("organization", organization_id), {}),
        ],
        {"organization_id": organization_id},
    )


def add_membership(facts: Facts, cause: Cause, user: Key, organization_id: str) -> Effect:
    """Make a user a member. A member already: unchanged."""
    subject = facts.users.get(user)
    if subject is None or not subject.can_be_subject:
        raise Refused("not_found", "this user does not exist", "user_id")
    roles.require_active(facts, (user[0], organization_id))
    if facts.is_member(user, organization_id):
        return Effect(False)
    facts.memberships.setdefault(user, set()).add(organization_id)
    details = {"organization_id": organization_id}
    return Effect(
        True,
        [
            INSERT_MEMBERSHIP(realm_id=user[0], organization_id=organization_id, user_id=user[1]),
            audit(cause, "organization.membership.added", ("user", user[1]), details),
            event(cause, "organization.membership.added", user[1], organization_id, details),
        ],
    )


def remove_membership(facts: Facts, cause: Cause, user: Key, organization_id: str) -> Effect:
    """End a membership, with its groups and organization roles. Not a member: unchanged.

    Raises Refused(`conflict`) for the last owner. Wants the organization in `ownership`, without a role.
    """
    if not facts.is_member(user, organization_id):
        return Effect(False)
    held = [item for item in facts.assignments.get(user, {}).values() if item.organization_id == organization_id]
    if facts.owners.get((user[0], organization_id)) == {user[1]}:  # a subject who owns it, and nobody else does
        raise Refused("conflict", "the last owner of an organization cannot be removed")
    effect = Effect(True)
    for member in [m for m in facts.group_members.get(user, {}).values() if m.organization_id == organization_id]:
        end_member = groups.end_member if facts.live(member.expires_at) else groups.expire_member
        effect.rows += end_member(facts, cause, user, member).rows
    for assignment in held:
        end = roles.end if facts.live(assignment.expires_at) else roles.expire
        effect.rows += end(facts, cause, user, assignment).rows
    facts.memberships[user].discard(organization_id)
    details = {"organization_id": organization_id}
    effect.rows += [
        DELETE_MEMBERSHIP(realm_id=user[0], organization_id=organization_id, user_id=user[1]),
        audit(cause, "organization.membership.removed", ("user", user[1]), details),
        event(cause, "organization.membership.removed", user[1], organization_id, details),
    ]
    return effect
