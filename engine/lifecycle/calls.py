"""Endpoint calls: made outside any transaction, under one deadline each, many at once; their answers are decided like steps."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, cast

from engine.core.errors import Refused, Unavailable
from engine.core.failpoints import hit
from engine.core.outcomes import Done
from engine.core.retry import CAP
from engine.core.settings import DeliverySettings
from engine.egress.destination import Destination
from engine.egress.http import classify, post
from engine.egress.secrets import Keyring
from engine.egress.signing import Secret
from engine.egress.step_call import StepCall
from engine.lifecycle import compensation, decide
from engine.lifecycle.facts import RunFact, RunFacts
from engine.lifecycle.moves import Move, PlannedCall, stay
from engine.lifecycle.steps.call_webhook import CallWebhook

Trigger = Literal["event", "schedule", "manual"]
Action = Literal["execute", "compensate"]


@dataclass(frozen=True, slots=True)
class Answered:
    """How a call ended. `failure` is None when the endpoint confirmed."""

    call: PlannedCall
    failure: Refused | Unavailable | None
    status: int | None = None
    retry_after: timedelta | None = None


def make_call(
    run: RunFact,
    call: PlannedCall,
    keyring: Keyring,
    settings: DeliverySettings,
    *,
    decided_at: tuple[datetime, float],
) -> Answered:
    """Make the call and say how it ended; never raises for what the world does.

    `decided_at` is the database's clock and the monotonic clock of one moment: the call is dated by the database's clock,
    however wrong the worker's own may be.
    """
    hit("call.before_send", ("call_webhook",))
    try:
        answer = _send(run, call, keyring, settings, decided_at)
    except (Refused, Unavailable) as failure:
        return Answered(call, failure)
    finally:
        hit("call.after_send", ("call_webhook",))
    return answer


def _send(
    run: RunFact, call: PlannedCall, keyring: Keyring, settings: DeliverySettings, decided_at: tuple[datetime, float]
) -> Answered:
    subscription = call.subscription
    now, monotonic = decided_at
    step_call = StepCall(
        action=cast(Action, call.action),
        realm_id=run.realm_id,
        organization_id=run.organization_id,
        workflow_id=run.workflow_id,
        revision=run.revision,
        run_id=run.id,
        step_id=call.step_id,
        attempt_id=call.attempt_id,
        attempt=call.attempt,
        subject_id=run.subject_id,
        trigger_type=cast(Trigger, run.trigger_type),
        event_type=run.event_type,
        event_id=run.event_id,
        sent_at=now + timedelta(seconds=time.monotonic() - monotonic),
    )
    allow_private = subscription.allow_private_network and settings.allow_private_egress
    bound_to = (run.realm_id, subscription.id)
    try:
        secrets = [Secret.parse(keyring.decrypt(secret, bound_to=bound_to)) for secret in subscription.secrets]
    except Refused as refusal:  # not to be decrypted, or decrypted to something that is no secret
        raise Refused("secret_unavailable", refusal.message) from refusal
    # Whether a private address may be reached is asked at the call, whose denial may pass; a URL that is none never will.
    destination = Destination.parse(subscription.url, allow_private=True)
    outgoing = step_call.outgoing(destination, secrets, allow_private=allow_private)
    longest = call.deadline if call.action == "compensate" else settings.webhook_timeout.total_seconds()
    answer = post(outgoing, deadline=min(call.deadline, longest))
    asked = None if answer.retry_after_seconds is None else min(timedelta(seconds=answer.retry_after_seconds), CAP)
    return Answered(call, classify(answer), answer.status, asked)


def decide_answer(run: RunFact, facts: RunFacts, answered: Answered) -> Move:
    """What becomes of the run now that its call has ended. An answer that is recorded already changes nothing: it is brought
    again when the database did not confirm the first time (lifecycle.md, decision 5)."""
    call, failure = answered.call, answered.failure
    if call.action == "compensate":
        attempt = facts.undoable.get(run.key)
        if attempt is None or attempt.id != call.attempt_id:
            return stay(run, keep=True)
        if failure is None:
            return compensation.succeeded(run, attempt, {"status": answered.status})
        return compensation.failed(
            run, attempt, facts, failure, tries=attempt.compensation_attempts, retry_after=answered.retry_after
        )
    if run.attempt is None or run.attempt.id != call.attempt_id or run.attempt.state != "started" or run.plan is None:
        return stay(run, keep=True)
    planned = run.plan.steps[call.step_index]
    if failure is not None:
        return decide.fail_attempt(run, planned, facts, failure, answered.retry_after)
    assert isinstance(planned.step, CallWebhook)
    result = {"status": answered.status}
    if planned.step.compensate:
        return decide.complete(run, planned, facts, Done(True, result, [], "notify_endpoint", "pending"))
    return decide.complete(run, planned, facts, Done(True, result, [], "impossible", "impossible"))
