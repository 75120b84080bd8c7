"""The step that puts the subject into a group, for ever or until it expires."""

from __future__ import annotations

from typing import Literal

from engine.core.ids import GroupId, OrganizationId
from engine.core.outcomes import Done, Outcome
from engine.directory import groups
from engine.directory.effects import Effect
from engine.lifecycle.facts import AttemptFact, RunFact, RunFacts, RunWanted
from engine.lifecycle.steps.group_steps import group_authority, group_in
from engine.lifecycle.steps.members import Expiry, RetriedMembers
from engine.lifecycle.steps.step_type import StepType, gone, organization_for


class AddToGroup(RetriedMembers):
    """Adds the subject, who must be a member of the group's organization."""

    type: Literal["add_to_group"]
    group_id: GroupId
    organization_id: OrganizationId | None = None
    """Pins the organization; without it, the run's."""
    expires_in: Expiry | None = None


def wants(step: AddToGroup, realm_id: str, run: RunFact | None, wanted: RunWanted) -> None:
    wanted.directory.groups.add((realm_id, step.group_id))


def decide(step: AddToGroup, run: RunFact, facts: RunFacts) -> Outcome:
    group = group_in(facts.directory, (run.realm_id, step.group_id), organization_for(step.organization_id, run))
    effect = groups.add_member(
        facts.directory,
        run.cause,
        run.subject,
        group.id,
        expires_at=None if step.expires_in is None else facts.now + step.expires_in.timedelta,
        step_key=run.step_key(step.id),
    )
    if not effect.changed:
        return Done(False)
    return Done(True, effect.result, effect.rows, "undo", "pending")


def undo(run: RunFact, attempt: AttemptFact, facts: RunFacts) -> Effect:
    """Takes back the very membership of this attempt. One that a person changed since has lost the step's key and stays."""
    held = facts.directory.group_member(run.subject, attempt.input["group_id"])
    if held is None or held.step_key != attempt.idempotency_key:
        return gone(run.subject_id)
    end = groups.end_member if facts.directory.live(held.expires_at) else groups.expire_member
    return end(facts.directory, run.cause, run.subject, held)


STEP = StepType(
    "add_to_group", AddToGroup, decide, wants=wants, authority=group_authority, undo=undo, acts_on_subject=True
)
