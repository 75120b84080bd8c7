"""Service principals, by hand.

Whoever lets a machine hold a role acts through it from then on. So giving a role, taking it and letting a disabled machine use
what it holds again pass the role ceiling at the realm, as an assignment does (lifecycle.md, "Authority").
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection

from engine.core.errors import Refused
from engine.core.trail import Cause
from engine.directory import service_principals
from engine.directory.authority import Authority, require_ceiling
from engine.directory.commands.acting import act, allow
from engine.directory.effects import Effect
from engine.directory.facts import Facts, RoleFact, Wanted

PERMISSION = "realm.users.write"
"""The catalogue is closed and has none of their own. They are accounts, as users are."""


def create(connection: Connection, cause: Cause, *, name: str, role_ids: Sequence[str] = ()) -> str:
    """A new, active service principal that holds these roles. Returns the id. Needs `realm.users.write`, and the ceiling of each
    role. Raises Refused (`forbidden`, `grant_ceiling_exceeded`, `approval_missing`, `not_found`, `validation_failed`,
    `conflict`)."""
    realm_id = cause.realm_id

    def command(facts: Facts, held: Authority) -> Effect:
        allow(held, PERMISSION)
        for index, role in enumerate(service_principals.holdable_roles(facts, realm_id, role_ids)):
            _require_givable(held, role, f"role_ids[{index}]")
        return service_principals.create_principal(facts, cause, name, role_ids)

    wanted = Wanted(roles={(realm_id, role_id) for role_id in role_ids})
    return str(act(connection, cause, wanted, command).result["principal_id"])


def update(connection: Connection, cause: Cause, principal_id: str, **changes: Any) -> None:
    """Change `name`, or `role_ids`: all that it holds from then on. Needs `realm.users.write`, and the ceiling of each role that
    is given or taken. Raises as `create`."""
    realm_id, role_ids = cause.realm_id, changes.get("role_ids", ())
    key = (realm_id, principal_id)

    def command(facts: Facts, held: Authority) -> Effect:
        allow(held, PERMISSION)
        fact = service_principals.existing_principal(facts, key)
        for index, role in enumerate(service_principals.holdable_roles(facts, realm_id, role_ids)):
            if role.id not in fact.role_ids:
                _require_givable(held, role, f"role_ids[{index}]")
        if "role_ids" in changes:
            _require_ceilings(facts, held, realm_id, fact.role_ids - set(role_ids))
        return service_principals.update_principal(facts, cause, key, changes)

    wanted = Wanted(changing_principals={key}, roles={(realm_id, role_id) for role_id in role_ids})
    act(connection, cause, wanted, command)


def disable(connection: Connection, cause: Cause, principal_id: str) -> bool:
    """Let its tokens count for nothing. Returns whether it was active. Needs `realm.users.write`. Raises Refused (`forbidden`,
    `not_found`)."""
    key = (cause.realm_id, principal_id)

    def command(facts: Facts, held: Authority) -> Effect:
        allow(held, PERMISSION)
        return service_principals.disable(facts, cause, key)

    return act(connection, cause, Wanted(changing_principals={key}), command).changed


def enable(connection: Connection, cause: Cause, principal_id: str) -> bool:
    """Let its tokens count again. Returns whether it was disabled. Needs `realm.users.write`, and the ceiling of each role it
    holds. Raises Refused (`forbidden`, `grant_ceiling_exceeded`, `not_found`)."""
    key = (cause.realm_id, principal_id)

    def command(facts: Facts, held: Authority) -> Effect:
        allow(held, PERMISSION)
        fact = service_principals.existing_principal(facts, key)
        _require_ceilings(facts, held, cause.realm_id, fact.role_ids)
        return service_principals.enable(facts, cause, key)

    return act(connection, cause, Wanted(changing_principals={key}), command).changed


def _require_givable(held: Authority, role: RoleFact, path: str) -> None:
    try:
        require_ceiling(held, role, "realm", None)
    except Refused as refusal:
        raise Refused(refusal.category, refusal.message, path) from None
    if role.requires_approval:
        raise Refused("approval_missing", "this role is given by a workflow with an approval, never by hand", path)


def _require_ceilings(facts: Facts, held: Authority, realm_id: str, role_ids: frozenset[str]) -> None:
    for role_id in sorted(role_ids):
        require_ceiling(held, facts.roles[realm_id, role_id], "realm", None)
