"""The step that suspends the subject's account."""

from __future__ import annotations

from typing import Literal

from engine.core.outcomes import Done, Outcome
from engine.directory import users
from engine.directory.authority import Authority, require
from engine.directory.facts import Facts
from engine.lifecycle.facts import RunFact, RunFacts
from engine.lifecycle.steps.members import RetriedMembers
from engine.lifecycle.steps.step_type import StepType


class SuspendUser(RetriedMembers):
    """Suspends the account."""

    type: Literal["suspend_user"]


def authority(step: SuspendUser, realm_id: str, organization_id: str | None, facts: Facts, held: Authority) -> None:
    require(held, "realm.users.suspend")


def decide(step: SuspendUser, run: RunFact, facts: RunFacts) -> Outcome:
    effect = users.suspend(facts.directory, run.cause, run.subject)
    return Done(effect.changed, effect.result, effect.rows)


STEP = StepType("suspend_user", SuspendUser, decide, authority=authority, acts_on_subject=True)
