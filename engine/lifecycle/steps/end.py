"""The step that ends a run as succeeded."""

from __future__ import annotations

from typing import Literal

from engine.core.outcomes import Done, Outcome
from engine.lifecycle.facts import RunFact, RunFacts
from engine.lifecycle.steps.members import StepMembers
from engine.lifecycle.steps.step_type import StepType


class End(StepMembers):
    """Ends the run `succeeded` here."""

    type: Literal["end"]


def decide(step: End, run: RunFact, facts: RunFacts) -> Outcome:
    return Done(True, ends_run=True)


STEP = StepType("end", End, decide, needs_subject=False)
