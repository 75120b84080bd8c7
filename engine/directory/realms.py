"""Realms: made with their built-in roles."""

from __future__ import annotations

from db.statements.bulk import insert_into
from db.tables import Realm, table
from engine.core import ids
from engine.core.ledger import Write
from engine.core.trail import Cause, audit
from engine.directory.effects import Effect
from engine.directory.permissions import BUILT_IN
from engine.directory.roles import create_role

INSERT_REALM = Write(9, insert_into(table(Realm), "id", "name", "workflow_publish_approval"))


def create_realm(name: str, *, workflow_publish_approval: bool = False) -> Effect:
    """A new realm. The result has `realm_id` and, under `roles`, the ids of the built-in roles by name."""
    realm_id = ids.new(ids.Prefix.REALM)
    cause = Cause(realm_id)
    effect = Effect(True, [INSERT_REALM(id=realm_id, name=name, workflow_publish_approval=workflow_publish_approval)])
    effect.rows.append(audit(cause, "realm.created", ("realm", realm_id), {}))
    made: dict[str, str] = {}
    for role in BUILT_IN:
        created = create_role(cause, role.name, role.boundary, role.permissions, built_in=True)
        effect.rows += created.rows
        made[role.name] = str(created.result["role_id"])
    effect.result = {"realm_id": realm_id, "roles": made}
    return effect
