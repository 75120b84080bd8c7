"""What steps of every type have: a name, a type and, where trying again makes sense, a retry policy of their own."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field
from pydantic_core import PydanticCustomError

from engine.core.durations import Duration, between
from engine.lifecycle.members import Members, StepId

Backoff = Annotated[Duration, between("1s", "1h")]

Expiry = Annotated[Duration, between("1m", "87600h")]
"""How long a grant lasts. The source sets no bound: a minute (the sweep's pace) to ten years are ours, and keep every
moment that follows from it within what the database and Python can both read."""

Scope = Literal["realm", "organization"]
"""Where a role is held. It must be the role's boundary (source: "Limits and validation")."""


class RetryPolicy(Members):
    """How often a step is tried, and the first wait (source: "Limits and validation"). Both may be left out."""

    max_attempts: int = Field(default=3, ge=1, le=10)
    """Attempts in total, the first included."""
    backoff: Backoff = Duration("30s")
    """The first wait; it doubles per attempt (engine.core.retry)."""


class StepMembers(Members):
    """The members of a step of any type."""

    id: StepId
    type: str


class RetriedMembers(StepMembers):
    """The members of a step that is tried again when it fails in passing: not of `wait`, `approval` and `end`."""

    retry: RetryPolicy | None = None
    """The step's own policy; without it the definition's holds (`Definition.policy`)."""


def only_in_an_organization(organization_id: str, scope: str | None) -> str:
    """A role held in the realm is held in no organization: naming one is a mistake, not a detail to ignore."""
    if scope == "realm":
        raise PydanticCustomError("scope_realm", "must be left out when the scope is realm")
    return organization_id


SCOPE_RULE: dict[str, Any] = {
    "if": {"required": ["scope"], "properties": {"scope": {"const": "realm"}}},
    "then": {"properties": {"organization_id": False}},
}
"""The same rule for JSON Schema."""
