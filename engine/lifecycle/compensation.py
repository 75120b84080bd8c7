"""Compensation: what a failed run did is taken back, newest first, one at a time (source: "Compensation").

`undo` reverses the run's own grant in the same kind of transaction that made it. `notify_endpoint` calls the endpoint again.
Each gets five tries in all, none after a permanent error; one that waits for its next try holds back those behind it.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from engine.core.errors import Refused, Unavailable
from engine.core.ledger import Row
from engine.core.retry import COMPENSATION_ATTEMPTS, COMPENSATION_BACKOFF, wait
from engine.egress.step_call import COMPENSATION_TIMEOUT
from engine.lifecycle.facts import RunFact, RunFacts, RunWanted, SuccessFact
from engine.lifecycle.moves import SAVE_COMPENSATION, Move, PlannedCall, run_audit, stay, step_audit, storable
from engine.lifecycle.states import RUN
from engine.lifecycle.steps.call_webhook import require_callable
from engine.lifecycle.steps.registry import STEP_TYPES

ENDS = {
    "settle_nothing": "failed",
    "settle_undone": "compensated",
    "settle_stuck": "compensation_failed",
    "settle_cancelled": "cancelled",
}
"""How a run settles, and the audit event that says so."""


def wants(run: RunFact, attempt: SuccessFact, wanted: RunWanted) -> None:
    """The facts that taking back this attempt needs."""
    if attempt.compensation_strategy == "notify_endpoint":
        wanted.subscriptions.add((run.realm_id, attempt.input["subscription_id"]))
        return
    wanted.directory.changing.add(run.subject)
    kind = STEP_TYPES.get(attempt.step_type)
    if kind is not None and kind.undo_wants is not None:
        kind.undo_wants(run, attempt, wanted)


def decide(run: RunFact, facts: RunFacts, *, given_up: bool) -> Move:
    """Take back the newest success that is not taken back yet, or settle. `given_up`: this one was interrupted too often."""
    attempt = facts.undoable.get(run.key)
    if attempt is None:
        return _settle(run, facts)
    try:
        if given_up:
            raise Refused("retries_exhausted", "taking this step back was interrupted too often")
        if attempt.compensation_strategy == "notify_endpoint":
            return _call(run, attempt, facts)
        undo = STEP_TYPES[attempt.step_type].undo
        if undo is None:
            raise Refused("error", f"a step of type {attempt.step_type} cannot be taken back")
        effect = undo(run, attempt, facts)
    except (Refused, Unavailable) as failure:
        return failed(
            run, attempt, facts, failure, tries=attempt.compensation_attempts + (not attempt.compensation_is_out)
        )
    rows = [*effect.rows, *_done(run, attempt, attempt.compensation_attempts + 1, effect.result)]
    return stay(run, state=RUN.move(run.state, "undo"), keep=True, rows=rows)


def _call(run: RunFact, attempt: SuccessFact, facts: RunFacts) -> Move:
    """One more try, recorded as under way before it is made. A try that nobody recorded the end of counts."""
    if attempt.compensation_is_out:
        raise Unavailable("interrupted", "the worker that made the call did not record its outcome")
    subscription_id = attempt.input["subscription_id"]
    require_callable(run.realm_id, subscription_id, facts)
    tries = attempt.compensation_attempts + 1
    planned = PlannedCall(
        action="compensate",
        attempt_id=attempt.id,
        attempt=tries,
        step_id=attempt.step_id,
        step_index=attempt.step_index,
        subscription=facts.subscriptions[run.realm_id, subscription_id],
        deadline=COMPENSATION_TIMEOUT.total_seconds(),
    )
    row = _save(run, attempt, compensation_attempts=tries, compensation_started_at=facts.now)
    return stay(run, state=RUN.move(run.state, "undo"), keep=True, rows=[row], call=planned)


def succeeded(run: RunFact, attempt: SuccessFact, result: dict[str, Any]) -> Move:
    """The endpoint has confirmed."""
    rows = _done(run, attempt, attempt.compensation_attempts, result)
    return stay(run, state=RUN.move(run.state, "undo"), keep=True, rows=rows)


def failed(
    run: RunFact,
    attempt: SuccessFact,
    facts: RunFacts,
    failure: Refused | Unavailable,
    *,
    tries: int,
    retry_after: timedelta | None = None,
) -> Move:
    """A try has failed, `tries` of them by now: again after a wait, or never."""
    state = RUN.move(run.state, "undo")
    told = {"category": failure.category, "message": storable(failure.message)}
    if isinstance(failure, Unavailable) and tries < COMPENSATION_ATTEMPTS:
        pause = wait(tries, COMPENSATION_BACKOFF, f"{attempt.idempotency_key}.compensate")
        row = _save(run, attempt, compensation_attempts=tries, compensation_result=told)
        return stay(
            run,
            state=state,
            due_at=facts.now + max(pause, retry_after or pause),
            rows=[row],
            failed_attempt=failure.category,
        )
    tries = min(tries, COMPENSATION_ATTEMPTS)
    rows = [
        _save(run, attempt, compensation_state="failed", compensation_attempts=tries, compensation_result=told),
        step_audit(run, "compensation_failed", attempt.step_id, category=failure.category, attempts=tries),
    ]
    return stay(run, state=state, keep=True, rows=rows, failed_attempt=failure.category)


def stuck(run: RunFact) -> Move:
    """The end of a run whose undoing cannot go on: an administrator must undo the rest by hand."""
    return _ended(run, "settle_stuck")


def _settle(run: RunFact, facts: RunFacts) -> Move:
    undone, failed = facts.settled.get(run.key, (False, False))
    if failed:
        event = "settle_stuck"
    elif run.cancel_requested:
        event = "settle_cancelled"
    else:
        event = "settle_undone" if undone else "settle_nothing"
    return _ended(run, event)


def _ended(run: RunFact, event: str) -> Move:
    state = RUN.move(run.state, event)
    return stay(run, state=state, rows=[run_audit(run, ENDS[event], category=run.error_category, final=True)])


def _done(run: RunFact, attempt: SuccessFact, tries: int, result: Any) -> list[Row]:
    return [
        _save(
            run,
            attempt,
            compensation_state="done",
            compensation_attempts=tries,
            compensation_result=dict(result),
        ),
        step_audit(run, "compensated", attempt.step_id, strategy=attempt.compensation_strategy),
    ]


def _save(run: RunFact, attempt: SuccessFact, **changes: Any) -> Row:
    values = {
        "realm_id": run.realm_id,
        "run_id": run.id,
        "step_index": attempt.step_index,
        "attempt": attempt.attempt,
        "compensation_state": "pending",
        "compensation_attempts": attempt.compensation_attempts,
        "compensation_started_at": None,
        "compensation_result": None,
        **changes,
    }
    return Row(SAVE_COMPENSATION, values)
