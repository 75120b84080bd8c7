"""What a step type is: a record of functions. Its file holds all there is to know of it; the registry is a literal dict."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from engine.core.errors import Refused
from engine.core.outcomes import Outcome
from engine.directory.authority import Authority
from engine.directory.effects import Effect
from engine.directory.facts import Facts
from engine.lifecycle.facts import AttemptFact, RunFact, RunFacts, RunWanted
from engine.lifecycle.steps.members import StepMembers

M = TypeVar("M", bound=StepMembers)


@dataclass(frozen=True, slots=True)
class StepType(Generic[M]):
    """A step type.

    `wants(step, realm_id, run, wanted)` names the facts; without a run it names what a check of authority needs.
    `authority(step, realm_id, organization_id, facts, authority)` raises Refused unless the authority covers doing the step
    directly; the organization is None when it is not known yet, and then realm-wide authority is needed.
    `decide(step, run, facts)` is pure. `undo(run, attempt, facts)` takes back what the attempt did.
    `acts`: the step has an effect, so its publisher must still hold the right to publish at that moment.
    `acts_on_subject`: it changes what the subject holds, so the subject's row is locked and the publisher cannot be it.
    """

    name: str
    members: type[M]
    decide: Callable[[M, RunFact, RunFacts], Outcome]
    wants: Callable[[M, str, RunFact | None, RunWanted], None] = lambda step, realm_id, run, wanted: None
    authority: Callable[[M, str, str | None, Facts, Authority], None] | None = None
    undo: Callable[[RunFact, AttemptFact, RunFacts], Effect] | None = None
    undo_wants: Callable[[RunFact, AttemptFact, RunWanted], None] | None = None
    acts: bool = True
    acts_on_subject: bool = False
    needs_subject: bool = True


def organization_for(pinned: str | None, run: RunFact) -> str:
    """The organization a step acts in: its own, else the run's. Raises Refused(`organization_required`)."""
    organization_id = pinned or run.organization_id
    if organization_id is None:
        raise Refused("organization_required", "this step needs an organization and the run has none")
    return organization_id


def gone(user_id: str) -> Effect:
    """An undo that finds nothing of its own left counts as done."""
    return Effect(False, [], {"already_gone": True, "user_id": user_id})
