"""The definition of a workflow: triggers that start runs, steps that a run takes (source: "Definition").

A definition comes from outside through `parse`, which tells every fault at once, and from a stored revision through
`load`. It is kept as it was given: members left out stay out, durations keep their author's text, and `canonical` gives
the bytes that are stored and hashed (lifecycle.md, decision 6).
"""

from __future__ import annotations

import json
from typing import Annotated, Literal, NamedTuple

from pydantic import Field, ValidationError

from engine.core.canonical import canonical_bytes, check_json, sha256_hex
from engine.core.errors import DefinitionInvalid, Fault, Refused
from engine.lifecycle.faults import faults_of, nulls
from engine.lifecycle.members import WHOLE, Items, Members
from engine.lifecycle.steps.add_to_group import AddToGroup
from engine.lifecycle.steps.approval import Approval
from engine.lifecycle.steps.assign_role import AssignRole
from engine.lifecycle.steps.call_webhook import CallWebhook
from engine.lifecycle.steps.end import End
from engine.lifecycle.steps.members import RetriedMembers, RetryPolicy
from engine.lifecycle.steps.notify import Notify
from engine.lifecycle.steps.remove_from_group import RemoveFromGroup
from engine.lifecycle.steps.remove_membership import RemoveMembership
from engine.lifecycle.steps.remove_role import RemoveRole
from engine.lifecycle.steps.suspend_user import SuspendUser
from engine.lifecycle.steps.wait import Wait
from engine.lifecycle.trigger_members import AnyTrigger

MAX_BYTES = 64 * 1024
"""Of the canonical form (source: "Limits and validation")."""

MAX_FAULTS = 100
"""Told at once: nobody reads more, and a definition full of strange members must not become an answer of megabytes."""

ONCE = RetryPolicy(max_attempts=1)
"""The policy of steps that are never retried."""

AnyStep = Annotated[
    AssignRole
    | RemoveRole
    | AddToGroup
    | RemoveFromGroup
    | RemoveMembership
    | SuspendUser
    | Notify
    | Approval
    | Wait
    | CallWebhook
    | End,
    Field(discriminator="type"),
]


class Definition(Members):
    """Triggers, steps and the retry policy they share. Made by `parse` and `load`, which check what types cannot."""

    schema_version: Annotated[Literal[1], WHOLE]
    triggers: Annotated[tuple[AnyTrigger, ...], Items(1, 5)]
    steps: Annotated[tuple[AnyStep, ...], Items(1, 20)]
    retry: RetryPolicy = RetryPolicy()

    def policy(self, step: AnyStep) -> RetryPolicy:
        """The policy in force for a step: its own as a whole, else the definition's, else 3 attempts and 30 seconds."""
        if not isinstance(step, RetriedMembers):
            return ONCE
        return step.retry or self.retry

    @property
    def pinned_organization(self) -> str | None:
        """The organization that every run has, where all triggers pin the same one."""
        pinned = {trigger.pinned_organization for trigger in self.triggers}
        return pinned.pop() if len(pinned) == 1 else None


class Canonical(NamedTuple):
    """What is stored of a definition: its RFC 8785 text, and the SHA-256 of that in hex."""

    text: str
    sha256: str


def parse(value: object) -> Definition:
    """The definition that a JSON value holds. Raises DefinitionInvalid with every fault found, or the first 100."""
    try:
        check_json(value, "definition")
        size = len(canonical_bytes(value))
    except Refused as refusal:
        raise DefinitionInvalid([Fault(refusal.path or "definition", "json", refusal.message)]) from None
    if size > MAX_BYTES:
        raise DefinitionInvalid([Fault("definition", "size", f"must be at most {MAX_BYTES} bytes in canonical form")])
    faults = [*nulls(value), *_steps_named_twice(value)]
    try:
        definition = Definition.model_validate(value)
    except ValidationError as invalid:
        faults += faults_of(invalid, told={fault.path for fault in faults})
        raise DefinitionInvalid(faults[:MAX_FAULTS]) from None
    if faults:
        raise DefinitionInvalid(faults[:MAX_FAULTS])
    return definition


def load(text: str, sha256: str) -> Definition:
    """The definition of a stored revision. Raises Refused("definition_unavailable") unless it is what was hashed."""
    try:
        if sha256_hex(text.encode()) == sha256:
            return parse(json.loads(text))
    except (DefinitionInvalid, ValueError, RecursionError):
        pass
    raise Refused("definition_unavailable", "the stored definition is not the one that was published")


def canonical(definition: Definition) -> Canonical:
    """The form to store: exactly the members the author gave, and their hash."""
    content = canonical_bytes(definition.model_dump(by_alias=True, exclude_unset=True))
    return Canonical(content.decode(), sha256_hex(content))


def _steps_named_twice(value: object) -> list[Fault]:
    """Read from the value itself, so that this fault is told together with all others."""
    steps = value.get("steps") if isinstance(value, dict) else None
    if not isinstance(steps, list):
        return []
    names = [step.get("id") if isinstance(step, dict) else None for step in steps]
    return [
        Fault(f"definition.steps[{index}].id", "unique", "must differ from the ids of all steps before it")
        for index, name in enumerate(names)
        if isinstance(name, str) and name in names[:index]
    ]
