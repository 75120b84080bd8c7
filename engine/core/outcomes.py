"""What a decision comes to. A failure is raised instead: `Refused` for good, `Unavailable` for now.

Done       the step is over; its rows, what it changed, how it would be undone
Parked     the run waits for a moment or for a person
Call       the step is a call to the world outside; it leaves the batch
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from engine.core.ledger import Row

Strategy = Literal["none", "undo", "notify_endpoint", "impossible"]
CompensationState = Literal["pending", "done", "not_needed", "impossible", "failed"]


@dataclass(slots=True)
class Done:
    """The step is over. Its compensation is fixed here, for good (source: "Compensation")."""

    changed: bool
    result: Mapping[str, Any] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)
    strategy: Strategy = "none"
    compensation: CompensationState = "not_needed"
    context: Mapping[str, Any] = field(default_factory=dict)
    """What later steps of the run may need: added to the run's context."""
    ends_run: bool = False


@dataclass(slots=True)
class Parked:
    """The run waits: `wait` until a moment, `ask` for a decision until a deadline."""

    event: Literal["wait", "ask"]
    until: datetime
    rows: list[Row] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Call:
    """A call to make, outside any transaction, within `deadline` seconds."""

    subscription_id: str
    deadline: float


Outcome = Done | Parked | Call
