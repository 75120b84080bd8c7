"""The guard: nobody gives through a workflow what they could not give by hand (source: "Delegation ceiling at publication").

One function for everything that makes somebody accountable for a definition: publication, rollback, enabling, manual start.
"""

from __future__ import annotations

from sqlalchemy import Connection

from db.statements.runs import now
from engine.core.errors import Refused
from engine.directory.authority import authority_of
from engine.directory.facts import Key
from engine.directory.load import load_facts
from engine.lifecycle.definition import Definition
from engine.lifecycle.facts import RunWanted
from engine.lifecycle.steps.registry import STEP_TYPES


def require_could_do(
    connection: Connection, actor: Key, definition: Definition, permission: str, organization_id: str | None = None
) -> None:
    """Raise Refused unless the actor holds `permission` and could do every step directly.

    A step that leaves its organization to the run is checked in `organization_id` (known for a manual start), else in the
    organization that all triggers pin, else against realm-wide authority. The refusal names the step in `path`.
    """
    wanted = RunWanted()
    wanted.directory.authority_of.add(actor)
    for step in definition.steps:
        STEP_TYPES[step.type].wants(step, actor[0], None, wanted)
    facts = load_facts(connection, wanted.directory, now(connection))
    held = authority_of(facts, actor)
    if not held.holds(permission):
        raise Refused("forbidden", f"this needs the permission {permission}")
    for index, step in enumerate(definition.steps):
        kind = STEP_TYPES[step.type]
        if kind.authority is None:
            continue
        scope = getattr(step, "scope", "organization")
        pinned = getattr(step, "organization_id", None) or organization_id or definition.pinned_organization
        try:
            kind.authority(step, actor[0], None if scope == "realm" else pinned, facts, held)
        except Refused as refusal:
            raise Refused(refusal.category, refusal.message, f"definition.steps[{index}]") from refusal
