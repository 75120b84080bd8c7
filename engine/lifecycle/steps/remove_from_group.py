"""The step that takes the subject out of a group."""

from __future__ import annotations

from typing import Literal

from engine.core.errors import Refused
from engine.core.ids import GroupId, OrganizationId
from engine.core.outcomes import Done, Outcome
from engine.directory import groups
from engine.directory.authority import Authority, require_group_ceiling
from engine.directory.facts import Facts
from engine.directory.groups import existing_group
from engine.lifecycle.facts import RunFact, RunFacts, RunWanted
from engine.lifecycle.steps.members import RetriedMembers
from engine.lifecycle.steps.step_type import StepType


class RemoveFromGroup(RetriedMembers):
    """Removes the subject from the group."""

    type: Literal["remove_from_group"]
    group_id: GroupId
    organization_id: OrganizationId | None = None
    """Pins the organization; without it, the run's."""


def wants(step: RemoveFromGroup, realm_id: str, run: RunFact | None, wanted: RunWanted) -> None:
    wanted.directory.groups.add((realm_id, step.group_id))


def authority(step: RemoveFromGroup, realm_id: str, organization_id: str | None, facts: Facts, held: Authority) -> None:
    """A group knows its organization; the run's does not matter."""
    group = existing_group(facts, (realm_id, step.group_id))
    require_group_ceiling(held, facts, (realm_id, step.group_id), group.organization_id)


def decide(step: RemoveFromGroup, run: RunFact, facts: RunFacts) -> Outcome:
    group = existing_group(facts.directory, (run.realm_id, step.group_id))
    if step.organization_id not in (None, group.organization_id):
        raise Refused("group_missing", f"the group {group.id} is not one of {step.organization_id}")
    effect = groups.remove_member(facts.directory, run.cause, run.subject, group.id)
    return Done(effect.changed, effect.result, effect.rows)


STEP = StepType("remove_from_group", RemoveFromGroup, decide, wants=wants, authority=authority, acts_on_subject=True)
