"""Loads the facts that a batch wants: one statement a kind, always in the same lock order, none for what nobody wants.

A statement that waits for a row sees the row as it is then, but everything else as it was before the wait. So one that locks
returns columns of the rows it locks and nothing else, and the clock is read when the last lock is held.
"""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import groupby

from sqlalchemy import Connection

from db.statements import facts as statements
from db.statements.runs import now
from db.statements.service_principals import lock_principal, roles_of
from engine.directory.facts import (
    AssignmentFact,
    Facts,
    GroupFact,
    GroupMemberFact,
    Key,
    OrganizationFact,
    PrincipalFact,
    RoleFact,
    UserFact,
    Wanted,
)


def load_facts(connection: Connection, wanted: Wanted) -> Facts:
    """A snapshot of what is wanted, under locks that last until the transaction ends."""
    facts = Facts(datetime.min.replace(tzinfo=UTC))
    _lock_users(connection, wanted, facts)
    _lock_principals(connection, wanted, facts)
    _load_holdings(connection, wanted, facts)
    _load_grants(connection, wanted, facts)
    _load_organizations(connection, wanted, facts)
    facts.now = now(connection)
    return facts


def _lock_users(connection: Connection, wanted: Wanted, facts: Facts) -> None:
    """All in the one order of their keys, whatever the mode, so that two who change each other wait instead of deadlock."""
    everyone = sorted(wanted.changing | wanted.watching | wanted.authority_of)
    for changes, stretch in groupby(everyone, key=wanted.changing.__contains__):
        for row in statements.lock_users(connection, list(stretch), "change" if changes else "share"):
            facts.users[row.realm_id, row.id] = UserFact(row.id, row.kind, row.state)


def _lock_principals(connection: Connection, wanted: Wanted, facts: Facts) -> None:
    """One by one: nobody changes two at once. What they hold is read under the lock."""
    for key in sorted(wanted.changing_principals):
        row = lock_principal(connection, *key, "change")
        if row is not None:
            held = frozenset(roles_of(connection, *key))
            facts.principals[key] = PrincipalFact(key[1], row.name, row.state, held)


def _load_organizations(connection: Connection, wanted: Wanted, facts: Facts) -> None:
    """Organizations that are named, and those of the groups found. Where an owner may go, the owners are counted."""
    counted = _owners_may_go(wanted, facts)
    named = wanted.organizations | {(realm_id, group.organization_id) for (realm_id, _), group in facts.groups.items()}
    for keys, lock in ((counted, "change"), (named - counted, "share")):
        if keys:
            for row in statements.lock_organizations(connection, keys, lock):  # type: ignore[arg-type]
                facts.organizations[row.realm_id, row.id] = OrganizationFact(row.id, row.state)
    owned = counted | wanted.owners_of
    if owned:
        for key in owned:
            facts.owners[key] = set()
        for row in statements.owners_of(connection, owned):
            facts.owners[row.realm_id, row.organization_id].add(row.user_id)
            facts.users.setdefault((row.realm_id, row.user_id), UserFact(row.user_id, row.kind, row.state))


def _owners_may_go(wanted: Wanted, facts: Facts) -> set[Key]:
    found: set[Key] = set()
    for realm_id, organization_id, role_id in wanted.ownership:
        if role_id is not None:
            at_stake = {role_id}
        else:
            at_stake = {
                held
                for user in wanted.changing
                if user[0] == realm_id
                for held, scope in facts.assignments.get(user, ())
                if scope == organization_id
            }
        if any((role := facts.roles.get((realm_id, held))) is not None and role.owns_organization for held in at_stake):
            found.add((realm_id, organization_id))
    return found


def _load_holdings(connection: Connection, wanted: Wanted, facts: Facts) -> None:
    """What the users hold. Authority rests on rows that are locked; what is to be changed is covered by the user's own lock."""
    holders = wanted.changing | wanted.authority_of
    if not holders:
        return
    for row in statements.memberships_of(connection, holders):
        facts.memberships.setdefault((row.realm_id, row.user_id), set()).add(row.organization_id)
    for row in statements.group_members_of(connection, holders):
        facts.group_members.setdefault((row.realm_id, row.user_id), {})[row.group_id] = GroupMemberFact(
            row.group_id, row.user_id, row.organization_id, row.expires_at, row.step_key
        )
    held = list(statements.lock_assignments_of(connection, wanted.authority_of)) if wanted.authority_of else []
    if others := wanted.changing - wanted.authority_of:
        held += statements.assignments_of(connection, others)
    for row in held:
        facts.assignments.setdefault((row.realm_id, row.user_id), {})[row.role_id, row.organization_id] = (
            AssignmentFact(
                row.id, row.user_id, row.role_id, row.scope, row.organization_id, row.expires_at, row.step_key
            )
        )


def _load_grants(connection: Connection, wanted: Wanted, facts: Facts) -> None:
    """Groups with their ancestors, and every role that is wanted, granted by them, held by a service principal, or part of
    someone's authority."""
    group_keys: set[Key] = wanted.groups | wanted.changing_groups
    role_keys: set[Key] = set(wanted.roles)
    at_stake = {
        (realm_id, organization_id) for realm_id, organization_id, role_id in wanted.ownership if role_id is None
    }
    for user in wanted.changing if at_stake else ():
        role_keys |= {
            (user[0], role_id) for role_id, scope in facts.assignments.get(user, ()) if (user[0], scope) in at_stake
        }
    for user in wanted.authority_of:
        group_keys |= {(user[0], group_id) for group_id in facts.group_members.get(user, ())}
        role_keys |= {(user[0], role_id) for role_id, _ in facts.assignments.get(user, ())}
    for (realm_id, _), principal in facts.principals.items():
        role_keys |= {(realm_id, role_id) for role_id in principal.role_ids}
    if wanted.changing_groups:
        statements.lock_groups_for_change(connection, wanted.changing_groups)
    if group_keys:
        locked = statements.lock_groups(connection, group_keys)
        granted: dict[Key, list[str]] = {(row.realm_id, row.id): [] for row in locked}
        for row in statements.roles_of_groups(connection, granted):
            granted[row.realm_id, row.group_id].append(row.role_id)
            role_keys.add((row.realm_id, row.role_id))
        for row in locked:
            role_ids = tuple(granted[row.realm_id, row.id])
            facts.groups[row.realm_id, row.id] = GroupFact(row.id, row.organization_id, row.parent_id, role_ids)
    if role_keys:
        for row in statements.lock_roles(connection, role_keys):
            facts.roles[row.realm_id, row.id] = RoleFact(
                row.id, row.name, row.boundary, frozenset(row.permissions), row.requires_approval, row.built_in
            )
