"""Verbs on service principals: machines that call the API with a token of their own, and the realm-wide roles they hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from db.statements.bulk import delete_from, insert_into, update_rows
from db.tables import ServicePrincipal, ServicePrincipalRole, table
from engine.core import ids
from engine.core.errors import Refused
from engine.core.ledger import Row, Write
from engine.core.trail import Cause, audit
from engine.directory.effects import Effect
from engine.directory.facts import Facts, Key, PrincipalFact, RoleFact

_principals, _roles = table(ServicePrincipal), table(ServicePrincipalRole)

DELETE_PRINCIPAL_ROLE = Write(6, delete_from(_roles, "realm_id", "service_principal_id", "role_id"))
UPDATE_PRINCIPAL = Write(8, update_rows(_principals, ["realm_id", "id"], ["name"]))
SET_PRINCIPAL_STATE = Write(8, update_rows(_principals, ["realm_id", "id"], ["state"], name="set principal state"))
INSERT_PRINCIPAL = Write(15, insert_into(_principals, "realm_id", "id", "name", "created_by"))
INSERT_PRINCIPAL_ROLE = Write(16, insert_into(_roles, "realm_id", "service_principal_id", "role_id"))


def existing_principal(facts: Facts, principal: Key) -> PrincipalFact:
    """The service principal. Raises Refused(`not_found`)."""
    fact = facts.principals.get(principal)
    if fact is None:
        raise Refused("not_found", "this service principal does not exist")
    return fact


def holdable_roles(facts: Facts, realm_id: str, role_ids: Sequence[str]) -> list[RoleFact]:
    """The roles, which a service principal can hold. Raises Refused (`not_found`, `validation_failed`) with the path of the
    first it cannot: `role_ids[1]`."""
    found = list[RoleFact]()
    for index, role_id in enumerate(role_ids):
        path, fact = f"role_ids[{index}]", facts.roles.get((realm_id, role_id))
        if fact is None:
            raise Refused("not_found", "this role does not exist", path)
        if fact.boundary != "realm":
            raise Refused("validation_failed", "a service principal holds roles of boundary realm only", path)
        if fact in found:
            raise Refused("validation_failed", "this role is named twice", path)
        found.append(fact)
    return found


def create_principal(facts: Facts, cause: Cause, name: str, role_ids: Sequence[str]) -> Effect:
    """A new, active service principal that holds these roles. The ceiling is the caller's to check. Raises as
    `holdable_roles`."""
    realm_id = cause.realm_id
    held = [role.id for role in holdable_roles(facts, realm_id, role_ids)]
    principal_id = ids.new(ids.Prefix.SERVICE_PRINCIPAL)
    rows = [
        INSERT_PRINCIPAL(realm_id=realm_id, id=principal_id, name=name, created_by=cause.actor_id),
        *_rows(INSERT_PRINCIPAL_ROLE, (realm_id, principal_id), held),
        _audit(cause, principal_id, "created", {"role_ids": sorted(held)}),
    ]
    return Effect(True, rows, {"principal_id": principal_id})


def update_principal(facts: Facts, cause: Cause, principal: Key, changes: Mapping[str, Any]) -> Effect:
    """Change `name`, or `role_ids`: all that it holds from then on. The same as before: unchanged. The ceiling is the caller's to
    check. Raises Refused(`not_found`) and as `holdable_roles`."""
    realm_id, principal_id = principal
    before = existing_principal(facts, principal)
    after = replace(before, name=changes.get("name", before.name))
    if "role_ids" in changes:
        held = holdable_roles(facts, realm_id, changes["role_ids"])
        after = replace(after, role_ids=frozenset(role.id for role in held))
    changed_fields = [member for member in ("name", "role_ids") if getattr(after, member) != getattr(before, member)]
    if not changed_fields:
        return Effect(False)
    facts.principals[principal] = after
    given, taken = sorted(after.role_ids - before.role_ids), sorted(before.role_ids - after.role_ids)
    details = {"changed_fields": changed_fields, "given": given, "taken": taken}
    rows = [
        UPDATE_PRINCIPAL(realm_id=realm_id, id=principal_id, name=after.name),
        *_rows(DELETE_PRINCIPAL_ROLE, principal, taken),
        *_rows(INSERT_PRINCIPAL_ROLE, principal, given),
        _audit(cause, principal_id, "changed", details),
    ]
    return Effect(True, rows)


def disable(facts: Facts, cause: Cause, principal: Key) -> Effect:
    """Its tokens count for nothing from then on. Disabled already: unchanged. Raises Refused(`not_found`)."""
    return _move(facts, cause, principal, "disabled", "disabled")


def enable(facts: Facts, cause: Cause, principal: Key) -> Effect:
    """Its tokens count again. Active already: unchanged. The ceiling is the caller's to check. Raises
    Refused(`not_found`)."""
    return _move(facts, cause, principal, "active", "enabled")


def _move(facts: Facts, cause: Cause, principal: Key, state: str, what: str) -> Effect:
    fact = existing_principal(facts, principal)
    if fact.state == state:
        return Effect(False)
    facts.principals[principal] = replace(fact, state=state)
    row = SET_PRINCIPAL_STATE(realm_id=principal[0], id=principal[1], state=state)
    return Effect(True, [row, _audit(cause, principal[1], what, {})])


def _rows(write: Write, principal: Key, role_ids: Iterable[str]) -> list[Row]:
    realm_id, principal_id = principal
    return [write(realm_id=realm_id, service_principal_id=principal_id, role_id=role_id) for role_id in role_ids]


def _audit(cause: Cause, principal_id: str, what: str, details: Mapping[str, object]) -> Row:
    return audit(cause, f"service_principal.{what}", ("service_principal", principal_id), details)
