"""The decision about a run: a pure function of the run and the facts, `decide(run, facts) -> Move`.

What must not happen is settled before the step's own decision is asked: a cancelled run goes no further, a disabled workflow
holds its runs, a success that is recorded is never applied again, a call that was interrupted is a failed attempt, and an
effect needs a publisher who could have it by hand at this very moment.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from engine.core.errors import Refused, Unavailable
from engine.core.outcomes import Call, Done, Parked
from engine.core.retry import wait
from engine.directory.authority import authority_of
from engine.lifecycle import compensation
from engine.lifecycle.facts import RunFact, RunFacts
from engine.lifecycle.moves import (
    Move,
    PlannedCall,
    attempt_number,
    end_attempt,
    finished_attempt,
    run_audit,
    started_attempt,
    stay,
    step_audit,
    storable,
)
from engine.lifecycle.plans import PlannedStep
from engine.lifecycle.states import RUN
from engine.lifecycle.steps.approval import end_pending

Failure = Refused | Unavailable

CANCELLED = Refused("cancelled", "the run was cancelled")

MAX_INTERRUPTIONS = 10
"""How often in a row a worker may die, or a transaction fail, on one step before the step is given up (lifecycle.md, 4)."""


def decide(run: RunFact, facts: RunFacts) -> Move:
    """What becomes of the run now."""
    if run.state == "compensating":
        return compensation.decide(run, facts, given_up=run.interruptions >= MAX_INTERRUPTIONS)
    if run.cancel_requested:
        return abandon(run, facts, CANCELLED)
    if run.workflow_state == "disabled":
        return stay(run, paused=True)
    if run.plan is None or run.step_index >= len(run.plan.steps):
        return abandon(run, facts, Refused("definition_unavailable", "the run's definition cannot be read"))
    planned = run.plan.steps[run.step_index]
    if run.attempt is not None and run.attempt.state == "succeeded":
        return _next(run, Done(False, ends_run=planned.type.name == "end"))
    try:
        return _step(run, planned, facts)
    except (Refused, Unavailable) as failure:
        return fail_attempt(run, planned, facts, failure)


def _step(run: RunFact, planned: PlannedStep, facts: RunFacts) -> Move:
    if run.interruptions >= MAX_INTERRUPTIONS:
        raise Refused(
            "retries_exhausted", f"the step {planned.step.id} was interrupted {run.interruptions} times in a row"
        )
    if planned.type.name == "call_webhook" and run.attempt is not None and run.attempt.state == "started":
        raise Unavailable("interrupted", "the worker that made the call did not record its outcome")
    _require_subject(run, planned, facts)
    _require_organization(run, planned)
    _require_authority(run, planned, facts)
    outcome = planned.type.decide(planned.step, run, facts)
    match outcome:
        case Done():
            return complete(run, planned, facts, outcome)
        case Parked():
            return _park(run, planned, facts, outcome)
        case Call():
            return _call(run, planned, facts, outcome)


def _require_subject(run: RunFact, planned: PlannedStep, facts: RunFacts) -> None:
    """A step is about somebody who is there, and nobody does to themselves what their own publication allows."""
    if not planned.type.needs_subject:
        return
    subject = facts.directory.users.get(run.subject)
    if subject is None or not subject.can_be_subject:
        raise Refused("subject_missing", f"the user {run.subject_id} is not there any more")
    if planned.type.acts_on_subject and run.subject_id == run.publisher_id:
        raise Refused("self_action", "a step cannot act on its own publisher")


def _require_authority(run: RunFact, planned: PlannedStep, facts: RunFacts) -> None:
    """Inside the transaction of every effect, on rows that are locked (source: "Ceiling at run time")."""
    if not planned.type.acts:
        return
    held = authority_of(facts.directory, run.publisher)
    try:
        if not held.holds("realm.workflows.publish"):
            raise Refused("forbidden", "the publisher may not publish workflows any more")
        if planned.type.authority is not None:
            organization_id = _organization(run, planned)
            planned.type.authority(planned.step, run.realm_id, organization_id, facts.directory, held)
    except Refused as refusal:
        if refusal.category in ("forbidden", "grant_ceiling_exceeded"):
            raise Refused("publisher_lacks_authority", f"{run.publisher_id}: {refusal.message}") from refusal
        raise


def _organization(run: RunFact, planned: PlannedStep) -> str | None:
    """The organization the step acts in, if it acts in one: its own, else the run's."""
    if getattr(planned.step, "scope", None) == "realm":
        return None
    pinned: str | None = getattr(planned.step, "organization_id", None)
    return pinned or run.organization_id


def _require_organization(run: RunFact, planned: PlannedStep) -> None:
    """Told before authority is asked: nobody has any in no organization."""
    acts_in_one = hasattr(planned.step, "organization_id") and getattr(planned.step, "scope", None) != "realm"
    if acts_in_one and _organization(run, planned) is None:
        raise Refused("organization_required", "this step needs an organization and the run has none")


def inputs_of(run: RunFact, planned: PlannedStep) -> dict[str, Any]:
    """The resolved input of an attempt: the step's members, with the organization that they leave to the run."""
    organization_id = _organization(run, planned) if hasattr(planned.step, "organization_id") else None
    return planned.members if organization_id is None else {**planned.members, "organization_id": organization_id}


def complete(run: RunFact, planned: PlannedStep, facts: RunFacts, done: Done) -> Move:
    """The step has succeeded: its effect, its attempt, the run's advance and the audit go together."""
    result = {**done.result, "changed": done.changed}
    attempt = finished_attempt(
        run,
        planned,
        inputs_of(run, planned),
        facts.now,
        state="succeeded",
        result=result,
        compensation_strategy=done.strategy,
        compensation_state=done.compensation,
    )
    details = {"step_type": planned.type.name, "attempt": attempt_number(run), "changed": done.changed}
    move = _next(run, done)
    move.rows[:0] = [*done.rows, attempt, step_audit(run, "succeeded", planned.step.id, **details)]
    return move


def _next(run: RunFact, done: Done) -> Move:
    """On to the next step, or to the end; errors of earlier tries are history. A run whose cancellation was asked for while its
    last call was out is not over: the next decision cancels it."""
    assert run.plan is not None
    after = {"context": {**run.context, **done.context}, "error_category": None, "last_error": None}
    over = done.ends_run or run.step_index + 1 >= len(run.plan.steps)
    if over and not run.cancel_requested:
        return stay(run, state=RUN.move(run.state, "finish"), rows=[run_audit(run, "succeeded")], **after)
    return stay(run, state=RUN.move(run.state, "advance"), step_index=run.step_index + 1, keep=True, **after)


def _park(run: RunFact, planned: PlannedStep, facts: RunFacts, parked: Parked) -> Move:
    """The run waits. The attempt is begun when it parks and over when it goes on."""
    rows = list(parked.rows)
    if run.attempt is None or run.attempt.state != "started":
        inputs = {**inputs_of(run, planned), "until": parked.until.isoformat()}
        rows.append(started_attempt(run, planned, inputs, facts.now)[1])
    return stay(run, state=RUN.move(run.state, parked.event), due_at=parked.until, rows=rows)


def _call(run: RunFact, planned: PlannedStep, facts: RunFacts, call: Call) -> Move:
    """Recorded as begun under the lease; made once that is committed."""
    attempt_id, row = started_attempt(run, planned, inputs_of(run, planned), facts.now)
    planned_call = PlannedCall(
        action="execute",
        attempt_id=attempt_id,
        attempt=attempt_number(run),
        step_id=planned.step.id,
        step_index=run.step_index,
        subscription=facts.subscriptions[run.realm_id, call.subscription_id],
        deadline=call.deadline,
    )
    return stay(run, state=RUN.move(run.state, "advance"), keep=True, rows=[row], call=planned_call)


def fail_attempt(
    run: RunFact, planned: PlannedStep, facts: RunFacts, failure: Failure, retry_after: timedelta | None = None
) -> Move:
    """An attempt has failed: try again later while the policy allows and the failure may pass, else undo the run.

    `retry_after` is what an endpoint asked for; it never shortens a wait, nor lets one exceed the cap.
    """
    number = attempt_number(run)
    attempt = finished_attempt(
        run,
        planned,
        inputs_of(run, planned),
        facts.now,
        state="failed",
        error_category=failure.category,
        error_message=storable(failure.message),
    )
    rows = [attempt, step_audit(run, "failed", planned.step.id, attempt=number, category=failure.category)]
    if run.cancel_requested:  # while its call was out: there is nothing to wait for
        failure = CANCELLED
    if isinstance(failure, Unavailable) and number < planned.max_attempts:
        pause = wait(number, planned.backoff, run.step_key(planned.step.id))
        if retry_after is not None:
            pause = max(pause, retry_after)
        state = RUN.move(run.state, "advance")
        return stay(
            run,
            state=state,
            due_at=facts.now + pause,
            rows=rows,
            error_category=failure.category,
            last_error=failure.message,
            failed_attempt=failure.category,
        )
    if isinstance(failure, Unavailable):
        failure = Refused(
            "retries_exhausted", f"{failure.category} at attempt {number} of {planned.max_attempts}: {failure.message}"
        )
    move = fail_run(run, facts, failure)
    move.rows[:0] = rows
    move.failed_attempt = attempt.values["error_category"]
    return move


def abandon(run: RunFact, facts: RunFacts, failure: Refused) -> Move:
    """The run goes no further, whatever it was at: an attempt that was begun ends with it."""
    move = fail_run(run, facts, failure)
    begun = run.attempt
    if begun is not None and begun.state == "started":
        category = "interrupted" if begun.step_type == "call_webhook" else failure.category
        outcome = {"state": "failed", "error_category": category, "error_message": failure.message}
        move.rows.insert(0, end_attempt(run, begun, facts.now, **outcome))
        move.rows.insert(1, step_audit(run, "failed", begun.step_id, attempt=begun.attempt, category=category))
        move.failed_attempt = category
    return move


def fail_run(run: RunFact, facts: RunFacts, failure: Refused) -> Move:
    """The run has failed and begins to undo what it did; an approval still pending is ended."""
    rows = [run_audit(run, "failed", category=failure.category, reason=failure.category)]
    approval = facts.approvals.get((run.realm_id, run.id, run.step_index))
    if approval is not None and approval.state == "pending":
        rows += end_pending(run, approval, "expire" if failure.category == "approval_expired" else "cancel", facts)
    return stay(
        run,
        state=RUN.move(run.state, "fail"),
        keep=True,
        error_category=failure.category,
        last_error=failure.message,
        rows=rows,
    )
