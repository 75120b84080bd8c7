"""What a decision about a run may know: the run itself, the attempt it is at, and the directory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from engine.core.trail import Cause
from engine.directory.facts import Facts, Key, Wanted

if TYPE_CHECKING:
    from engine.lifecycle.plans import Plan


@dataclass(frozen=True, slots=True)
class AttemptFact:
    """An attempt as it is recorded."""

    id: str
    step_index: int
    step_id: str
    step_type: str
    attempt: int
    state: str
    idempotency_key: str
    input: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SuccessFact(AttemptFact):
    """A success that is still to be taken back."""

    compensation_strategy: str
    compensation_attempts: int
    compensation_is_out: bool


@dataclass(frozen=True, slots=True)
class ApprovalFact:
    id: str
    state: str
    expires_at: datetime
    decided_by: str | None


@dataclass(frozen=True, slots=True)
class SubscriptionFact:
    id: str
    state: str
    is_realm_wide: bool
    url: str
    allow_private_network: bool
    secrets: tuple[bytes, ...]
    """Ciphertexts: the secret in force and, within its overlap window, the one before it."""


@dataclass(slots=True)
class RunFact:
    """A run under its lease, as it was loaded under its lock. `fence` and the owner go into every write about it."""

    realm_id: str
    id: str
    workflow_id: str
    revision: int
    publisher_id: str
    subject_id: str
    organization_id: str | None
    trigger_type: str
    event_type: str | None
    event_id: str | None
    input_version: int
    depth: int
    state: str
    step_index: int
    context: dict[str, Any]
    error_category: str | None
    last_error: str | None
    cancel_requested: bool
    fence: int
    interruptions: int
    workflow_state: str
    attempt: AttemptFact | None
    """The latest attempt of the step that the run is at."""
    plan: Plan | None
    """None when the stored definition cannot be read any more."""

    @property
    def key(self) -> Key:
        return self.realm_id, self.id

    @property
    def subject(self) -> Key:
        return self.realm_id, self.subject_id

    @property
    def publisher(self) -> Key:
        return self.realm_id, self.publisher_id

    @property
    def cause(self) -> Cause:
        """What the run does is its publisher's doing, and carries the run's id (source: "Authority and accountability")."""
        return Cause(
            self.realm_id,
            "user",
            self.publisher_id,
            request_id=self.id,
            correlation_id=self.id,
            workflow_id=self.workflow_id,
            depth=self.depth,
        )

    @property
    def system_cause(self) -> Cause:
        """For what nobody decided: the clock did."""
        return Cause(
            self.realm_id, request_id=self.id, correlation_id=self.id, workflow_id=self.workflow_id, depth=self.depth
        )

    def step_key(self, step_id: str) -> str:
        """The idempotency key of a step: the same for every attempt."""
        return f"{self.id}.{step_id}"


@dataclass(slots=True)
class RunWanted:
    """What the decisions of a round will ask for."""

    directory: Wanted = field(default_factory=Wanted)
    subscriptions: set[Key] = field(default_factory=set)


@dataclass(slots=True)
class RunFacts:
    """The facts of a round."""

    directory: Facts
    subscriptions: dict[Key, SubscriptionFact] = field(default_factory=dict)
    approvals: dict[tuple[str, str, int], ApprovalFact] = field(default_factory=dict)
    """By realm, run and step index."""
    undoable: dict[Key, SuccessFact] = field(default_factory=dict)
    """By run that compensates: the newest succeeded attempt whose compensation is pending."""
    settled: dict[Key, tuple[bool, bool]] = field(default_factory=dict)
    """By run that compensates: whether something was undone, and whether a compensation failed."""

    @property
    def now(self) -> datetime:
        """The database's clock when the round was loaded."""
        return self.directory.now
