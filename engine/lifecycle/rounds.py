"""A round: lock, load, decide, write, commit, for all runs in hand at once (DESIGN.md, "Functional core, set-based shell")."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta

from sqlalchemy import Connection

from db.session import Database
from engine.core.failpoints import hit
from engine.core.leases import Lease
from engine.core.ledger import Ledger
from engine.lifecycle.calls import Answered, decide_answer
from engine.lifecycle.decide import decide
from engine.lifecycle.facts import RunFact, RunFacts
from engine.lifecycle.load import load_compensations, load_round, load_runs
from engine.lifecycle.moves import Move, stay
from engine.lifecycle.plans import Plans

EFFECTS = 49
"""Rank up to which the ledger holds effects; attempts, runs and the trail come after."""


CALL_PAUSE = timedelta(milliseconds=500)
"""After which a run is looked at again whose call finds all callers busy. A call that was not begun is no attempt."""


def advance(
    database: Database, owner: str, plans: Plans, leases: Sequence[Lease], *, last: bool, room_for_calls: int
) -> list[Move]:
    """One transition for every run that is still held. `last`: what would go on is handed back and due at once.

    At most `room_for_calls` calls are begun: full callers hold up no other run.
    """
    with database.begin() as connection:
        runs = load_runs(connection, leases, owner, plans)
        steps = _steps(runs)
        facts = load_round(connection, runs) if runs else None
        moves: list[Move] = []
        if facts is not None:
            hit("round.after_load", steps)
            for run in runs:
                move = decide(run, facts)
                if move.call is not None and room_for_calls <= 0:
                    move = stay(run, due_at=facts.now + CALL_PAUSE)
                room_for_calls -= move.call is not None
                if last and move.keep and move.call is None:
                    move.keep, move.due_at = False, facts.now
                moves.append(move)
            _write(connection, owner, moves, facts, steps)
        hit("round.before_commit", steps)
    hit("round.after_commit", steps)
    return moves


def record_answers(database: Database, owner: str, plans: Plans, answers: Mapping[Lease, Answered]) -> list[Move]:
    """Write down what endpoints answered. An answer for a run that is no longer held is dropped.

    Nothing is locked but the runs: what an endpoint did is done, whoever holds subject or publisher at the moment.
    """
    by_run = {(lease.realm_id, lease.run_id): answered for lease, answered in answers.items()}
    with database.begin() as connection:
        runs = load_runs(connection, answers, owner, plans)
        facts = load_compensations(connection, runs)
        moves = [decide_answer(run, facts, by_run[run.key]) for run in runs]
        _write(connection, owner, moves, facts, _steps(runs))
        hit("answer.before_commit", ("call_webhook",))
    hit("answer.after_commit", ("call_webhook",))
    return moves


def _write(connection: Connection, owner: str, moves: Sequence[Move], facts: RunFacts, steps: set[str]) -> None:
    """The rows of all moves, each table once."""
    ledger = Ledger()
    for move in moves:
        move.decided_at = facts.now
        ledger.add(move.rows)
        ledger.add([move.row(owner)])
    hit("round.after_decide", steps)
    ledger.write(connection, upto=EFFECTS)
    hit("round.after_effects", steps)
    ledger.write(connection, above=EFFECTS)


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
