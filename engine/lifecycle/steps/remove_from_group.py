"""The step that takes the subject out of a group."""

from __future__ import annotations

from typing import Literal

from engine.core.ids import GroupId, OrganizationId
from engine.core.outcomes import Done, Outcome
from engine.directory import groups
from engine.lifecycle.facts import RunFact, RunFacts, RunWanted
from engine.lifecycle.steps.group_steps import group_authority, group_in
from engine.lifecycle.steps.members import RetriedMembers
from engine.lifecycle.steps.step_type import StepType, organization_for


class RemoveFromGroup(RetriedMembers):
    """Removes the subject from the group."""

    type: Literal["remove_from_group"]
    group_id: GroupId
    organization_id: OrganizationId | None = None
    """Pins the organization; without it, the run's."""


def wants(step: RemoveFromGroup, realm_id: str, run: RunFact | None, wanted: RunWanted) -> None:
    wanted.directory.groups.add((realm_id, step.group_id))


def decide(step: RemoveFromGroup, run: RunFact, facts: RunFacts) -> Outcome:
    group = group_in(facts.directory, (run.realm_id, step.group_id), organization_for(step.organization_id, run))
    effect = groups.remove_member(facts.directory, run.cause, run.subject, group.id)
    return Done(effect.changed, effect.result, effect.rows)


STEP = StepType(
    "remove_from_group", RemoveFromGroup, decide, wants=wants, authority=group_authority, acts_on_subject=True
)
