"""The step that calls an endpoint with a signed POST."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from engine.core.errors import Refused, Unavailable
from engine.core.ids import SubscriptionId
from engine.core.outcomes import Call, Outcome
from engine.directory.authority import Authority, require
from engine.directory.facts import Facts
from engine.lifecycle.facts import RunFact, RunFacts, RunWanted
from engine.lifecycle.steps.members import RetriedMembers
from engine.lifecycle.steps.step_type import StepType


class CallWebhook(RetriedMembers):
    """A signed POST to the destination of a webhook subscription."""

    type: Literal["call_webhook"]
    subscription_id: SubscriptionId
    timeout_ms: int | None = Field(default=None, ge=100, le=30000)
    """Milliseconds. The smaller of this and the operator's `webhook_timeout` holds."""
    compensate: bool = False
    """Whether the endpoint is called again when the run is undone."""


def wants(step: CallWebhook, realm_id: str, run: RunFact | None, wanted: RunWanted) -> None:
    wanted.subscriptions.add((realm_id, step.subscription_id))


def authority(step: CallWebhook, realm_id: str, organization_id: str | None, facts: Facts, held: Authority) -> None:
    require(held, "realm.webhooks.write")


def decide(step: CallWebhook, run: RunFact, facts: RunFacts) -> Outcome:
    require_callable(run.realm_id, step.subscription_id, facts)
    deadline = float("inf") if step.timeout_ms is None else step.timeout_ms / 1000
    return Call(step.subscription_id, deadline)


def require_callable(realm_id: str, subscription_id: str, facts: RunFacts) -> None:
    """Raise unless the subscription can be called now: paused is for the moment, missing and disabled are for good."""
    subscription = facts.subscriptions.get((realm_id, subscription_id))
    if subscription is None or subscription.state == "deleted" or not subscription.is_realm_wide:
        raise Refused("subscription_missing", f"the subscription {subscription_id} is not there")
    if subscription.state == "disabled":
        raise Refused("subscription_disabled", f"the subscription {subscription_id} is disabled")
    if subscription.state == "paused":
        raise Unavailable("subscription_paused", f"the subscription {subscription_id} is paused")


STEP = StepType("call_webhook", CallWebhook, decide, wants=wants, authority=authority)
