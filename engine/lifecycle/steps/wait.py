"""The step that parks a run for a while."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from engine.core.durations import Duration, between
from engine.core.outcomes import Done, Outcome, Parked
from engine.lifecycle.facts import RunFact, RunFacts
from engine.lifecycle.steps.members import StepMembers
from engine.lifecycle.steps.step_type import StepType


class Wait(StepMembers):
    """Parks."""

    type: Literal["wait"]
    for_: Annotated[Duration, between("1m", "8760h")] = Field(alias="for")
    """Written `for` in a definition, which Python keeps for itself."""


def decide(step: Wait, run: RunFact, facts: RunFacts) -> Outcome:
    """Parks once, and is over when the database's clock has reached the moment it was parked until."""
    if run.attempt is None or run.attempt.state != "started":
        return Parked("wait", facts.now + step.for_.timedelta)
    until = datetime.fromisoformat(run.attempt.input["until"])
    if facts.now < until:
        return Parked("wait", until)
    return Done(True, {"waited_until": until.isoformat()})


STEP = StepType("wait", Wait, decide, acts=False, needs_subject=False)
