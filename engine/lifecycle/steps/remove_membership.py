"""The step that ends the subject's membership of an organization."""

from __future__ import annotations

from typing import Literal

from engine.core.ids import OrganizationId
from engine.core.outcomes import Done, Outcome
from engine.directory import organizations
from engine.directory.authority import Authority, require
from engine.directory.facts import Facts
from engine.lifecycle.facts import RunFact, RunFacts, RunWanted
from engine.lifecycle.steps.members import RetriedMembers
from engine.lifecycle.steps.step_type import StepType, organization_for


class RemoveMembership(RetriedMembers):
    """Ends the membership, with its groups and organization roles."""

    type: Literal["remove_membership"]
    organization_id: OrganizationId | None = None
    """Pins the organization; without it, the run's."""


def wants(step: RemoveMembership, realm_id: str, run: RunFact | None, wanted: RunWanted) -> None:
    organization_id = step.organization_id or (run.organization_id if run is not None else None)
    if run is not None and organization_id is not None:
        wanted.directory.ownership.add((realm_id, organization_id, None))


def authority(
    step: RemoveMembership, realm_id: str, organization_id: str | None, facts: Facts, held: Authority
) -> None:
    require(held, "org.members.write", organization_id)


def decide(step: RemoveMembership, run: RunFact, facts: RunFacts) -> Outcome:
    organization_id = organization_for(step.organization_id, run)
    effect = organizations.remove_membership(facts.directory, run.cause, run.subject, organization_id)
    return Done(effect.changed, effect.result, effect.rows)


STEP = StepType("remove_membership", RemoveMembership, decide, wants=wants, authority=authority, acts_on_subject=True)
