"""A round: lock, load, decide, write, commit, for all runs in hand at once (DESIGN.md, "Functional core, set-based shell")."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from sqlalchemy import Connection

from db.session import Database
from engine.core.failpoints import hit
from engine.core.leases import Lease
from engine.core.ledger import Ledger
from engine.lifecycle.calls import Answered, decide_answer
from engine.lifecycle.decide import decide
from engine.lifecycle.facts import RunFact, RunFacts
from engine.lifecycle.load import load_round, load_runs
from engine.lifecycle.moves import Move
from engine.lifecycle.plans import Plans

EFFECTS = 49
"""Rank up to which the ledger holds effects; attempts, runs and the trail come after."""

Decision = Callable[[RunFact, RunFacts], Move]


def advance(database: Database, owner: str, plans: Plans, leases: Sequence[Lease], *, last: bool) -> list[Move]:
    """One transition for every run that is still held. `last`: what would go on is handed back and due at once."""
    with database.begin() as connection:
        runs = load_runs(connection, leases, owner, plans)
        moves = _decide_and_write(connection, owner, runs, decide, last=last)
        steps = _steps(runs)
        hit("round.before_commit", steps)
    hit("round.after_commit", steps)
    return moves


def record_answers(
    database: Database, owner: str, plans: Plans, answers: Sequence[tuple[Lease, Answered]]
) -> list[Move]:
    """Write down what endpoints answered. An answer for a run that is no longer held is dropped."""
    by_run = {(lease.realm_id, lease.run_id): answered for lease, answered in answers}
    with database.begin() as connection:
        runs = load_runs(connection, [lease for lease, _ in answers], owner, plans)
        moves = _decide_and_write(
            connection, owner, runs, lambda run, facts: decide_answer(run, facts, by_run[run.key]), last=False
        )
        hit("answer.before_commit", ("call_webhook",))
    hit("answer.after_commit", ("call_webhook",))
    return moves


def _decide_and_write(
    connection: Connection, owner: str, runs: Sequence[RunFact], decision: Decision, *, last: bool
) -> list[Move]:
    if not runs:
        return []
    steps = _steps(runs)
    facts = load_round(connection, runs)
    hit("round.after_load", steps)
    moves, ledger = [], Ledger()
    for run in runs:
        move = decision(run, facts)
        move.decided_at = facts.now
        if last and move.keep and move.call is None:
            move.keep, move.due_at = False, facts.now
        ledger.add(move.rows)
        ledger.add([move.row(owner)])
        moves.append(move)
    hit("round.after_decide", steps)
    ledger.write(connection, upto=EFFECTS)
    hit("round.after_effects", steps)
    ledger.write(connection, above=EFFECTS)
    return moves


def _steps(runs: Iterable[RunFact]) -> set[str]:
    """The step types the runs are at, or `compensate`, for failpoints."""
    return {
        "compensate"
        if run.state == "compensating"
        else run.plan.steps[run.step_index].type.name
        if run.plan is not None and run.step_index < len(run.plan.steps)
        else "none"
        for run in runs
    }
