"""Whether all that a definition names is there in the realm (source: "Limits and validation").

What another realm has is missing here, in the same words: nothing of it shows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from sqlalchemy import Connection

from db.statements import references as statements
from engine.core.errors import DefinitionInvalid, Fault
from engine.lifecycle.definition import AnyStep, Definition
from engine.lifecycle.steps.add_to_group import AddToGroup
from engine.lifecycle.steps.approval import Approval
from engine.lifecycle.steps.assign_role import AssignRole
from engine.lifecycle.steps.call_webhook import CallWebhook
from engine.lifecycle.steps.remove_from_group import RemoveFromGroup
from engine.lifecycle.steps.remove_membership import RemoveMembership
from engine.lifecycle.steps.remove_role import RemoveRole
from engine.lifecycle.trigger_members import AnyTrigger, EventMembers, GroupMembers, RoleHolders, ScheduleMembers

Kind = Literal["role", "group", "approver", "organization", "subscription"]


@dataclass(frozen=True, slots=True)
class Reference:
    """One id in a definition, and what else must be true of what it names."""

    path: str
    kind: Kind
    id: str
    belongs_to: str | None = None
    """The boundary a role must have, or the organization a group must be of. None: existence is enough."""


_MISSING: Mapping[Kind, str] = {
    "role": "must be a role of this realm",
    "group": "must be a group of this realm",
    "approver": "must be an active user of this realm who is not a guest",
    "organization": "must be an active organization of this realm",
    "subscription": "must be a webhook subscription of this realm that belongs to no organization",
}


def check_references(connection: Connection, realm_id: str, definition: Definition) -> None:
    """Raises DefinitionInvalid with a fault for every reference that does not hold in the realm. Reads, locks nothing."""
    named = list(references(definition))
    ids: dict[Kind, set[str]] = defaultdict(set)
    for reference in named:
        ids[reference.kind].add(reference.id)
    found = {kind: _existing(connection, realm_id, kind, wanted) for kind, wanted in ids.items()}
    faults = [fault for reference in named if (fault := _fault(reference, found[reference.kind]))]
    if faults:
        raise DefinitionInvalid(faults)


def references(definition: Definition) -> Iterator[Reference]:
    """Every reference of a definition, in the order an author reads it."""
    for index, trigger in enumerate(definition.triggers):
        yield from _of_trigger(trigger, f"definition.triggers[{index}]")
    for index, step in enumerate(definition.steps):
        yield from _of_step(step, f"definition.steps[{index}]", definition.pinned_organization)


def _of_trigger(trigger: AnyTrigger, path: str) -> Iterator[Reference]:
    match trigger:
        case EventMembers(organization_id=str(organization_id)):
            yield Reference(f"{path}.organization_id", "organization", organization_id)
        case ScheduleMembers(select=select):
            if select.organization_id is not None:
                yield Reference(f"{path}.select.organization_id", "organization", select.organization_id)
            match select:
                case RoleHolders(role_id=role_id):
                    yield Reference(f"{path}.select.role_id", "role", role_id)
                case GroupMembers(group_id=group_id):
                    yield Reference(f"{path}.select.group_id", "group", group_id, select.organization_id)


def _of_step(step: AnyStep, path: str, pinned: str | None) -> Iterator[Reference]:
    match step:
        case AssignRole() | RemoveRole():
            yield Reference(f"{path}.role_id", "role", step.role_id, step.scope)
        case AddToGroup() | RemoveFromGroup():
            yield Reference(f"{path}.group_id", "group", step.group_id, step.organization_id or pinned)
        case Approval():
            for index, approver in enumerate(step.approvers):
                yield Reference(f"{path}.approvers[{index}]", "approver", approver)
        case CallWebhook():
            yield Reference(f"{path}.subscription_id", "subscription", step.subscription_id)
    match step:
        case AssignRole() | RemoveRole() | AddToGroup() | RemoveFromGroup() | RemoveMembership():
            if step.organization_id is not None:
                yield Reference(f"{path}.organization_id", "organization", step.organization_id)


def _existing(connection: Connection, realm_id: str, kind: Kind, ids: set[str]) -> Mapping[str, str | None]:
    """What is there of those ids, and what each belongs to."""
    match kind:
        case "role":
            return statements.role_boundaries(connection, realm_id, ids)
        case "group":
            return statements.group_organizations(connection, realm_id, ids)
        case "approver":
            return dict.fromkeys(statements.possible_approvers(connection, realm_id, ids))
        case "organization":
            return dict.fromkeys(statements.active_organizations(connection, realm_id, ids))
        case "subscription":
            return dict.fromkeys(statements.callable_subscriptions(connection, realm_id, ids))


def _fault(reference: Reference, found: Mapping[str, str | None]) -> Fault | None:
    if reference.id not in found:
        return Fault(reference.path, "reference", _MISSING[reference.kind])
    if reference.belongs_to in (None, found[reference.id]):
        return None
    if reference.kind == "role":
        return Fault(reference.path, "reference", f"must be a role for the scope {reference.belongs_to}")
    return Fault(reference.path, "reference", "must be a group of the organization that the step or its triggers name")
