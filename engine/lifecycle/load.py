"""Loads a round: the runs under their leases, then the facts that their next decisions need, one statement a kind.

Lock order: runs, workflows, users, service principals, groups, roles, organizations, approvals.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlalchemy import Connection

from db.rows import AnyRow
from db.statements import runs as statements
from db.statements.subscriptions import subscriptions_by_key
from engine.core.leases import Lease
from engine.directory.facts import Facts
from engine.directory.load import load_facts
from engine.lifecycle import compensation
from engine.lifecycle.facts import (
    ApprovalFact,
    AttemptFact,
    RunFact,
    RunFacts,
    RunWanted,
    SubscriptionFact,
    SuccessFact,
)
from engine.lifecycle.plans import Plan, Plans
from engine.lifecycle.states import RUN


def load_runs(connection: Connection, leases: Iterable[Lease], owner: str, plans: Plans) -> list[RunFact]:
    """The runs that are still held, locked, in the order of realm and id. Those whose lease is lost are not among them."""
    rows = statements.lock_leased(connection, [lease.row for lease in leases], owner=owner)
    if not rows:
        return []
    states = {
        (row.realm_id, row.id): row.state
        for row in statements.lock_workflows(connection, list({(row.realm_id, row.workflow_id) for row in rows}))
    }
    known = plans.of(connection, {(row.realm_id, row.workflow_id, row.revision) for row in rows})
    return [
        _run(row, states[row.realm_id, row.workflow_id], known.get((row.realm_id, row.workflow_id, row.revision)))
        for row in rows
        if row.state not in RUN.terminal
    ]


def load_compensations(connection: Connection, runs: Sequence[RunFact]) -> RunFacts:
    """What runs that compensate have to take back, and nothing of the directory: enough to record an answer."""
    facts = RunFacts(Facts(statements.now(connection)))
    compensating = [run.key for run in runs if run.state == "compensating"]
    for row in statements.compensations(connection, compensating) if compensating else ():
        facts.settled[row.realm_id, row.run_id] = (row.undone, row.stuck)
        if row.attempt_id is not None:
            facts.undoable[row.realm_id, row.run_id] = _undoable(row)
    return facts


def load_round(connection: Connection, runs: Sequence[RunFact]) -> RunFacts:
    """The facts of a round."""
    facts = load_compensations(connection, runs)
    wanted = RunWanted()
    for run in runs:
        _collect(run, facts.undoable.get(run.key), wanted)
    facts.directory = load_facts(connection, wanted.directory)
    if wanted.subscriptions:
        for row in subscriptions_by_key(connection, wanted.subscriptions):
            facts.subscriptions[row.realm_id, row.id] = _subscription(row)
    asking = [run.key for run in runs if run.state == "awaiting_approval"]
    for row in statements.lock_approvals(connection, asking) if asking else ():
        facts.approvals[row.realm_id, row.run_id, row.step_index] = ApprovalFact(
            row.id, row.state, row.expires_at, row.decided_by
        )
    return facts


def _collect(run: RunFact, undoable: SuccessFact | None, wanted: RunWanted) -> None:
    """What the decision about this run will look at, and nothing for what it will not."""
    if run.state == "compensating":
        if undoable is not None:
            compensation.wants(run, undoable, wanted)
        return
    if run.cancel_requested or run.workflow_state == "disabled" or run.plan is None:
        return
    if run.step_index >= len(run.plan.steps):
        return
    planned = run.plan.steps[run.step_index]
    if planned.type.acts:
        wanted.directory.authority_of.add(run.publisher)
    if planned.type.acts_on_subject:
        wanted.directory.changing.add(run.subject)
    elif planned.type.needs_subject:
        wanted.directory.watching.add(run.subject)
    planned.type.wants(planned.step, run.realm_id, run, wanted)


def _run(row: AnyRow, workflow_state: str, plan: Plan | None) -> RunFact:
    attempt = None
    if row.attempt_id is not None:
        attempt = AttemptFact(
            row.attempt_id,
            row.step_index,
            row.attempt_step_id,
            row.attempt_step_type,
            row.attempt_number,
            row.attempt_state,
            row.attempt_key,
            row.attempt_input,
        )
    return RunFact(
        row.realm_id,
        row.id,
        row.workflow_id,
        row.revision,
        row.publisher_id,
        row.subject_id,
        row.organization_id,
        row.trigger_type,
        row.event_type,
        row.event_id,
        row.input_version,
        row.depth,
        row.state,
        row.step_index,
        row.context,
        row.error_category,
        row.last_error,
        row.cancel_requested,
        row.fence,
        row.interruptions,
        workflow_state,
        attempt,
        plan,
    )


def _undoable(row: AnyRow) -> SuccessFact:
    return SuccessFact(
        row.attempt_id,
        row.step_index,
        row.step_id,
        row.step_type,
        row.attempt,
        "succeeded",
        row.idempotency_key,
        row.input,
        row.compensation_strategy,
        row.compensation_attempts,
        row.is_out,
    )


def _subscription(row: AnyRow) -> SubscriptionFact:
    secrets = (row.secret,) if row.previous_secret is None else (row.secret, row.previous_secret)
    return SubscriptionFact(row.id, row.state, row.organization_id is None, row.url, row.allow_private_network, secrets)
