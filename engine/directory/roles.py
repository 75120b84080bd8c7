"""Verbs on role assignments: grant, revoke, expire. And the creation of roles."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from engine.core import ids
from engine.core.errors import Refused
from engine.core.trail import Cause, audit, by_the_clock, event
from engine.directory.effects import DELETE_ASSIGNMENT, INSERT_ASSIGNMENT, INSERT_ROLE, SET_EXPIRY, Effect
from engine.directory.facts import AssignmentFact, Facts, Key, RoleFact
from engine.directory.permissions import is_permission


def create_role(
    cause: Cause,
    name: str,
    boundary: str,
    permissions: Sequence[str],
    *,
    requires_approval: bool = False,
    built_in: bool = False,
) -> Effect:
    """A new role. Raises Refused(`validation_failed`) for a permission the catalogue does not have, or one out of bounds."""
    for index, permission in enumerate(permissions):
        path = f"permissions[{index}]"
        if not is_permission(permission):
            raise Refused("validation_failed", "this permission is not in the catalogue", path)
        if boundary == "organization" and not permission.startswith("org."):
            raise Refused("validation_failed", "a role of organizations may hold only org.* permissions", path)
    role_id = ids.new(ids.Prefix.ROLE)
    return Effect(
        True,
        [
            INSERT_ROLE(
                realm_id=cause.realm_id,
                id=role_id,
                name=name,
                boundary=boundary,
                permissions=list(permissions),
                requires_approval=requires_approval,
                built_in=built_in,
            ),
            audit(cause, "role.created", ("role", role_id), {"boundary": boundary, "permissions": list(permissions)}),
        ],
        {"role_id": role_id},
    )


def existing_role(facts: Facts, role: Key) -> RoleFact:
    """The role. Raises Refused(`not_found`)."""
    fact = facts.roles.get(role)
    if fact is None:
        raise Refused("not_found", "this role does not exist", "role_id")
    return fact


def grant(
    facts: Facts,
    cause: Cause,
    user: Key,
    role_id: str,
    organization_id: str | None,
    *,
    expires_at: datetime | None = None,
    step_key: str | None = None,
) -> Effect:
    """Give a user a role, in the realm (`organization_id` None) or in one organization the user is a member of.

    Held already: unchanged, whatever its expiry. An assignment that has expired is replaced. The ceiling is the caller's to
    check. Raises Refused (`not_found`, `validation_failed`, `conflict`, `not_a_member`).
    """
    realm_id, user_id = user
    role = facts.roles.get((realm_id, role_id))
    subject = facts.users.get(user)
    if role is None or subject is None or not subject.can_be_subject:
        raise Refused("not_found", "this role or user does not exist", "role_id" if role is None else "user_id")
    scope = "realm" if organization_id is None else "organization"
    if role.boundary != scope:
        raise Refused("validation_failed", f"the role is not one of boundary {scope}", "role_id")
    if organization_id is not None:
        require_active(facts, (realm_id, organization_id))
        if not facts.is_member(user, organization_id):
            raise Refused("not_a_member", "the user is not a member of the organization", "user_id")
    if expires_at is not None and expires_at <= facts.now:
        raise Refused("validation_failed", "the expiry lies in the past", "expires_at")
    held = facts.assignment(user, role_id, organization_id)
    if held is not None and facts.live(held.expires_at):
        return Effect(False, [], {"assignment_id": held.id})
    rows = [] if held is None else list(expire(facts, by_the_clock(cause), user, held).rows)
    assignment = AssignmentFact(
        ids.new(ids.Prefix.ROLE_ASSIGNMENT), user_id, role_id, scope, organization_id, expires_at, step_key
    )
    facts.assignments.setdefault(user, {})[role_id, organization_id] = assignment
    if role.owns_organization and organization_id is not None and (realm_id, organization_id) in facts.owners:
        facts.owners[realm_id, organization_id].add(user_id)
    details = {
        "assignment_id": assignment.id,
        "role_id": role_id,
        "scope": scope,
        "organization_id": organization_id,
        "expires_at": None if expires_at is None else expires_at.isoformat(),
    }
    rows += [
        INSERT_ASSIGNMENT(
            realm_id=realm_id,
            id=assignment.id,
            role_id=role_id,
            user_id=user_id,
            scope=scope,
            organization_id=organization_id,
            granted_by=cause.actor_id,
            expires_at=expires_at,
            step_key=step_key,
        ),
        audit(cause, "role.assignment.granted", ("user", user_id), details),
        event(cause, "role.assignment.granted", user_id, organization_id, details),
    ]
    return Effect(True, rows, {"assignment_id": assignment.id})


def revoke(facts: Facts, cause: Cause, user: Key, role_id: str, organization_id: str | None) -> Effect:
    """Take a role from a user in one scope. Not held: unchanged. Raises Refused(`conflict`) for an organization's last owner."""
    held = facts.assignment(user, role_id, organization_id)
    if held is None or not facts.live(held.expires_at):
        return Effect(False)
    keep_an_owner(facts, user, held)
    return end(facts, cause, user, held)


def end(facts: Facts, cause: Cause, user: Key, held: AssignmentFact) -> Effect:
    """Take away an assignment that is there; whether its organization keeps an owner is the caller's to check."""
    return _end(facts, cause, user, held, "role.assignment.revoked")


def expire(facts: Facts, cause: Cause, user: Key, held: AssignmentFact) -> Effect:
    """Take away an assignment whose time is over (by the sweep, or because a new one takes its place)."""
    return _end(facts, cause, user, held, "role.assignment.expired")


def extend(facts: Facts, cause: Cause, user: Key, held: AssignmentFact, expires_at: datetime | None) -> Effect:
    """Change the expiry of an assignment by hand. From then on it is that person's, and no undo of a workflow touches it.

    Raises Refused: `validation_failed` for the past, `conflict` where it would let an organization's last owner expire.
    """
    if expires_at is not None:
        if expires_at <= facts.now:
            raise Refused("validation_failed", "the expiry lies in the past", "expires_at")
        keep_an_owner(facts, user, held)
    changed = AssignmentFact(held.id, held.user_id, held.role_id, held.scope, held.organization_id, expires_at, None)
    facts.assignments[user][held.role_id, held.organization_id] = changed
    details = {"assignment_id": held.id, "expires_at": None if expires_at is None else expires_at.isoformat()}
    return Effect(
        True,
        [
            SET_EXPIRY(realm_id=user[0], id=held.id, expires_at=expires_at, step_key=None),
            audit(cause, "role.assignment.changed", ("user", user[1]), details),
        ],
        {"assignment_id": held.id},
    )


def keep_an_owner(facts: Facts, user: Key, held: AssignmentFact) -> None:
    """Raise Refused(`conflict`) when the assignment is what makes the user the last owner of an organization."""
    role = facts.roles.get((user[0], held.role_id))
    if role is None or not role.owns_organization or held.organization_id is None:
        return
    if not facts.owners.get((user[0], held.organization_id), set()) - {user[1]}:
        raise Refused("conflict", "the last owner of an organization cannot be removed")


def require_active(facts: Facts, organization: Key) -> None:
    """Raise Refused unless the organization exists and is active."""
    fact = facts.organizations.get(organization)
    if fact is None:
        raise Refused("not_found", "this organization does not exist", "organization_id")
    if fact.state != "active":
        raise Refused("conflict", "the organization is not active", "organization_id")


def _end(facts: Facts, cause: Cause, user: Key, held: AssignmentFact, type_: str) -> Effect:
    realm_id, user_id = user
    facts.assignments[user].pop((held.role_id, held.organization_id), None)
    role = facts.roles.get((realm_id, held.role_id))
    if role is not None and role.owns_organization and held.organization_id is not None:
        facts.owners.get((realm_id, held.organization_id), set()).discard(user_id)
    details = {"assignment_id": held.id, "role_id": held.role_id, "organization_id": held.organization_id}
    return Effect(
        True,
        [
            DELETE_ASSIGNMENT(realm_id=realm_id, id=held.id),
            audit(cause, type_, ("user", user_id), details),
            event(cause, type_, user_id, held.organization_id, details),
        ],
        {"assignment_id": held.id},
    )
