"""The guard: nobody gives through a workflow what they could not give by hand (source: "Delegation ceiling at publication").

One function for everything that makes somebody accountable for a definition: publication, rollback, enabling, manual start.
"""

from __future__ import annotations

from sqlalchemy import Connection

from engine.core.errors import Refused
from engine.core.trail import Cause
from engine.directory.authority import authority_of
from engine.directory.commands.acting import actor_of
from engine.directory.facts import Facts, Key
from engine.directory.load import load_facts
from engine.lifecycle.definition import Definition
from engine.lifecycle.facts import RunWanted
from engine.lifecycle.references import check_references
from engine.lifecycle.selectors.registry import require_selectable
from engine.lifecycle.steps.registry import STEP_TYPES


def require_could_answer_for(connection: Connection, cause: Cause, definition: Definition) -> None:
    """Raise unless the actor may let this definition fire, by publication, rollback or enabling: DefinitionInvalid for what it
    names and is not there, or what this version cannot fire; Refused for authority that the actor lacks."""
    actor = actor_of(cause)
    check_references(connection, cause.realm_id, definition)
    require_selectable(definition)
    require_could_do(connection, actor, definition, "realm.workflows.publish")


def require_could_do(
    connection: Connection,
    actor: Key,
    definition: Definition,
    permission: str,
    *,
    subject_id: str | None = None,
    organization_id: str | None = None,
) -> None:
    """Raise Refused unless the actor holds `permission` and could do every step directly; for a manual start also unless its
    subject and organization are there (`not_found`, told before anything about authority).

    A step that leaves its organization to the run is checked in `organization_id` (known for a manual start), else in the
    organization that all triggers pin, else against realm-wide authority. The refusal names the step in `path`.
    """
    wanted = RunWanted()
    wanted.directory.authority_of.add(actor)
    for step in definition.steps:
        STEP_TYPES[step.type].wants(step, actor[0], None, wanted)
    if subject_id is not None:
        wanted.directory.watching.add((actor[0], subject_id))
    if organization_id is not None:
        wanted.directory.organizations.add((actor[0], organization_id))
    facts = load_facts(connection, wanted.directory)
    _require_there(facts, actor[0], subject_id, organization_id)
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


def _require_there(facts: Facts, realm_id: str, subject_id: str | None, organization_id: str | None) -> None:
    if subject_id is not None:
        subject = facts.users.get((realm_id, subject_id))
        if subject is None or not subject.can_be_subject:
            raise Refused("not_found", "this user does not exist", "subject_id")
    if organization_id is not None:
        organization = facts.organizations.get((realm_id, organization_id))
        if organization is None or organization.state != "active":
            raise Refused("not_found", "this organization does not exist", "organization_id")
