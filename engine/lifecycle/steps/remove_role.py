"""The step that revokes every assignment of a role that the subject holds in one scope."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, ValidationInfo, field_validator

from engine.core.ids import OrganizationId, RoleId
from engine.core.outcomes import Done, Outcome
from engine.directory import roles
from engine.directory.authority import Authority, require_ceiling
from engine.directory.facts import Facts
from engine.directory.roles import existing_role
from engine.lifecycle.facts import RunFact, RunFacts, RunWanted
from engine.lifecycle.steps.members import SCOPE_RULE, RetriedMembers, Scope, only_in_an_organization
from engine.lifecycle.steps.step_type import StepType, organization_for


class RemoveRole(RetriedMembers):
    """Revokes every assignment of the role in that scope."""

    model_config = ConfigDict(json_schema_extra=SCOPE_RULE)

    type: Literal["remove_role"]
    role_id: RoleId
    scope: Scope
    organization_id: OrganizationId | None = None
    """Pins the organization; without it, the run's."""

    @field_validator("organization_id")
    @classmethod
    def _scope(cls, value: str, info: ValidationInfo) -> str:
        return only_in_an_organization(value, info.data.get("scope"))


def wants(step: RemoveRole, realm_id: str, run: RunFact | None, wanted: RunWanted) -> None:
    wanted.directory.roles.add((realm_id, step.role_id))
    organization_id = step.organization_id or (run.organization_id if run is not None else None)
    if run is not None and step.scope == "organization" and organization_id is not None:
        wanted.directory.ownership.add((realm_id, organization_id, step.role_id))


def authority(step: RemoveRole, realm_id: str, organization_id: str | None, facts: Facts, held: Authority) -> None:
    require_ceiling(held, existing_role(facts, (realm_id, step.role_id)), step.scope, organization_id)


def decide(step: RemoveRole, run: RunFact, facts: RunFacts) -> Outcome:
    organization_id = organization_for(step.organization_id, run) if step.scope == "organization" else None
    effect = roles.revoke(facts.directory, run.cause, run.subject, step.role_id, organization_id)
    return Done(effect.changed, effect.result, effect.rows)


STEP = StepType("remove_role", RemoveRole, decide, wants=wants, authority=authority, acts_on_subject=True)
