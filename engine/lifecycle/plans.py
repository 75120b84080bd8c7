"""Plans: a revision made ready to run. Parsed once and kept by revision, for revisions never change."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy import Connection

from db.statements import runs as statements
from engine.core.errors import Refused
from engine.lifecycle.definition import Definition, load
from engine.lifecycle.steps.members import StepMembers
from engine.lifecycle.steps.registry import STEP_TYPES
from engine.lifecycle.steps.step_type import StepType

RevisionKey = tuple[str, str, int]
"""Realm, workflow and revision number."""

KEPT = 4096
"""Plans a worker keeps; the one used longest ago goes first."""


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """A step with its type, its policy and the members that go into an attempt's record."""

    step: StepMembers
    type: StepType[Any]
    members: dict[str, Any]
    max_attempts: int
    backoff: timedelta


@dataclass(frozen=True, slots=True)
class Plan:
    """A definition, its hash, and its steps in order."""

    definition: Definition
    sha256: str
    steps: tuple[PlannedStep, ...]


def plan_of(definition: Definition, sha256: str) -> Plan:
    """The plan of a definition."""
    steps = []
    for step in definition.steps:
        policy = definition.policy(step)
        members = step.model_dump(by_alias=True, exclude_unset=True, exclude={"id", "type", "retry"})
        steps.append(PlannedStep(step, STEP_TYPES[step.type], members, policy.max_attempts, policy.backoff.timedelta))
    return Plan(definition, sha256, tuple(steps))


class Plans:
    """The plans a worker has at hand."""

    def __init__(self) -> None:
        self._kept: OrderedDict[RevisionKey, Plan] = OrderedDict()

    def of(self, connection: Connection, keys: Collection[RevisionKey]) -> dict[RevisionKey, Plan | None]:
        """The plans of these revisions. None for one whose stored definition is not what was published."""
        found: dict[RevisionKey, Plan | None] = {}
        missing = [key for key in keys if key not in self._kept]
        for row in statements.definitions(connection, missing) if missing else ():
            key = (row.realm_id, row.workflow_id, row.number)
            try:
                self._kept[key] = plan_of(load(row.definition, row.definition_hash), row.definition_hash)
            except Refused:
                found[key] = None
        for key in keys:
            if key in self._kept:
                self._kept.move_to_end(key)
                found[key] = self._kept[key]
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        return found
