"""Role assignments, by hand: under the role ceiling (lifecycle.md, "Authority").

A role that requires approval is given by a workflow with an approval before it, never by hand; what shortens or ends it is
allowed.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from sqlalchemy import Connection

from db.statements.reads_roles import assignment as assignment_row
from engine.core.errors import Refused
from engine.core.trail import Cause
from engine.directory import roles
from engine.directory.authority import Authority, require_ceiling
from engine.directory.commands.acting import act
from engine.directory.effects import Effect
from engine.directory.facts import AssignmentFact, Facts, Key, RoleFact, Wanted


def assign(
    connection: Connection,
    cause: Cause,
    *,
    user_id: str,
    role_id: str,
    organization_id: str | None = None,
    expires_at: datetime | None = None,
) -> tuple[str, bool]:
    """Give a user a role, realm-wide or in an organization. Returns the assignment's id, and whether it is new.

    Raises Refused (`not_found`, `forbidden`, `grant_ceiling_exceeded`, `approval_missing`, `not_a_member`,
    `validation_failed`, `conflict`).
    """
    realm_id = cause.realm_id
    user = (realm_id, user_id)
    wanted = Wanted(changing={user}, roles={(realm_id, role_id)})
    if organization_id is not None:
        wanted.organizations.add((realm_id, organization_id))

    def command(facts: Facts, held: Authority) -> Effect:
        role = roles.existing_role(facts, (realm_id, role_id))
        if organization_id is not None:
            roles.require_active(facts, (realm_id, organization_id))
        require_ceiling(held, role, "realm" if organization_id is None else "organization", organization_id)
        present = facts.assignment(user, role_id, organization_id)
        if present is None or not facts.live(present.expires_at):
            _require_no_approval(role)
        return roles.grant(facts, cause, user, role_id, organization_id, expires_at=expires_at)

    effect = act(connection, cause, wanted, command)
    return str(effect.result["assignment_id"]), effect.changed


def extend(connection: Connection, cause: Cause, assignment_id: str, expires_at: datetime | None) -> None:
    """Change when an assignment expires; None is never. From then on it is this person's, and no undo of a workflow touches
    it.

    Raises Refused (`not_found`, `forbidden`, `grant_ceiling_exceeded`, `approval_missing`, `validation_failed`).
    """

    def change(facts: Facts, user: Key, held: AssignmentFact, role: RoleFact) -> Effect:
        longer = held.expires_at is not None and (expires_at is None or expires_at > held.expires_at)
        if longer:
            _require_no_approval(role)
        return roles.extend(facts, cause, user, held, expires_at)

    _on_assignment(connection, cause, assignment_id, change)


def revoke(connection: Connection, cause: Cause, assignment_id: str) -> None:
    """Take an assignment away. Raises Refused (`not_found`, `forbidden`, `grant_ceiling_exceeded`; `conflict` for the last
    owner of an organization)."""

    def change(facts: Facts, user: Key, held: AssignmentFact, role: RoleFact) -> Effect:
        return roles.revoke(facts, cause, user, held.role_id, held.organization_id)

    _on_assignment(connection, cause, assignment_id, change)


def _on_assignment(
    connection: Connection,
    cause: Cause,
    assignment_id: str,
    change: Callable[[Facts, Key, AssignmentFact, RoleFact], Effect],
) -> None:
    """Look the assignment up, lock its user, and look again: it may have gone in between."""
    row = assignment_row(connection, cause.realm_id, assignment_id)
    if row is None:
        raise _missing()
    user = (cause.realm_id, row.user_id)
    wanted = Wanted(changing={user}, roles={(cause.realm_id, row.role_id)})
    if row.organization_id is not None:
        wanted.ownership.add((cause.realm_id, row.organization_id, row.role_id))

    def command(facts: Facts, authority: Authority) -> Effect:
        held = facts.assignment(user, row.role_id, row.organization_id)
        if held is None or held.id != assignment_id or not facts.live(held.expires_at):
            raise _missing()
        role = roles.existing_role(facts, (cause.realm_id, held.role_id))
        require_ceiling(authority, role, held.scope, held.organization_id)
        return change(facts, user, held, role)

    act(connection, cause, wanted, command)


def _require_no_approval(role: RoleFact) -> None:
    if role.requires_approval:
        raise Refused("approval_missing", "this role is given by a workflow with an approval, never by hand", "role_id")


def _missing() -> Refused:
    return Refused("not_found", "this role assignment does not exist")
