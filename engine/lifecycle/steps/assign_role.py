"""The step that grants the subject a role, for ever or until it expires."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, ValidationInfo, field_validator

from engine.core.errors import Refused
from engine.core.ids import OrganizationId, RoleId
from engine.core.outcomes import Done, Outcome
from engine.directory import roles
from engine.directory.authority import Authority, authority_of, require_ceiling
from engine.directory.effects import Effect
from engine.directory.facts import Facts, RoleFact
from engine.directory.roles import existing_role
from engine.lifecycle.facts import AttemptFact, RunFact, RunFacts, RunWanted
from engine.lifecycle.steps.members import SCOPE_RULE, Expiry, RetriedMembers, Scope, only_in_an_organization
from engine.lifecycle.steps.step_type import StepType, gone, organization_for


class AssignRole(RetriedMembers):
    """Grants the role to the subject."""

    model_config = ConfigDict(json_schema_extra=SCOPE_RULE)

    type: Literal["assign_role"]
    role_id: RoleId
    scope: Scope
    organization_id: OrganizationId | None = None
    """Pins the organization; without it, the run's."""
    expires_in: Expiry | None = None

    @field_validator("organization_id")
    @classmethod
    def _scope(cls, value: str, info: ValidationInfo) -> str:
        return only_in_an_organization(value, info.data.get("scope"))


def wants(step: AssignRole, realm_id: str, run: RunFact | None, wanted: RunWanted) -> None:
    wanted.directory.roles.add((realm_id, step.role_id))
    if run is None or step.scope != "organization":
        organization_id = step.organization_id
    else:
        organization_id = step.organization_id or run.organization_id
    if organization_id is not None:
        wanted.directory.organizations.add((realm_id, organization_id))
    approver = None if run is None else run.context.get("approver")
    if approver is not None:
        wanted.directory.authority_of.add((realm_id, approver))


def authority(step: AssignRole, realm_id: str, organization_id: str | None, facts: Facts, held: Authority) -> None:
    require_ceiling(held, existing_role(facts, (realm_id, step.role_id)), step.scope, organization_id)


def decide(step: AssignRole, run: RunFact, facts: RunFacts) -> Outcome:
    organization_id = organization_for(step.organization_id, run) if step.scope == "organization" else None
    role = existing_role(facts.directory, (run.realm_id, step.role_id))
    held = facts.directory.assignment(run.subject, role.id, organization_id)
    if role.requires_approval and (held is None or not facts.directory.live(held.expires_at)):
        _require_independent_approver(run, role, step.scope, organization_id, facts.directory)
    effect = roles.grant(
        facts.directory,
        run.cause,
        run.subject,
        role.id,
        organization_id,
        expires_at=None if step.expires_in is None else facts.now + step.expires_in.timedelta,
        step_key=run.step_key(step.id),
    )
    if not effect.changed:
        return Done(False, effect.result)
    return Done(True, effect.result, effect.rows, "undo", "pending")


def _require_independent_approver(
    run: RunFact, role: RoleFact, scope: str, organization_id: str | None, facts: Facts
) -> None:
    """A role that requires approval needs the decider of the run's latest approval: neither publisher nor subject, and one
    who could assign the role (source: "Separation of duties")."""
    approver = run.context.get("approver")
    if approver is None:
        raise Refused("approval_missing", f"the role {role.id} needs an approval earlier in the run")
    if approver in (run.publisher_id, run.subject_id):
        raise Refused("forbidden", f"the role {role.id} needs an approver who is neither publisher nor subject")
    require_ceiling(authority_of(facts, (run.realm_id, approver)), role, scope, organization_id)


def undo_wants(run: RunFact, attempt: AttemptFact, wanted: RunWanted) -> None:
    role_id, organization_id = attempt.input["role_id"], attempt.input.get("organization_id")
    wanted.directory.roles.add((run.realm_id, role_id))
    if organization_id is not None:
        wanted.directory.ownership.add((run.realm_id, organization_id, role_id))


def undo(run: RunFact, attempt: AttemptFact, facts: RunFacts) -> Effect:
    """Takes back the very assignment of this attempt. One that a person changed since has lost the step's key and stays."""
    for held in facts.directory.assignments.get(run.subject, {}).values():
        if held.step_key == attempt.idempotency_key:
            if not facts.directory.live(held.expires_at):
                return roles.expire(facts.directory, run.cause, run.subject, held)
            roles.keep_an_owner(facts.directory, run.subject, held)
            return roles.end(facts.directory, run.cause, run.subject, held)
    return gone(run.subject_id)


STEP = StepType(
    "assign_role",
    AssignRole,
    decide,
    wants=wants,
    authority=authority,
    undo=undo,
    undo_wants=undo_wants,
    acts_on_subject=True,
)
