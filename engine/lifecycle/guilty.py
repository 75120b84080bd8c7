"""A run whose own transaction fails: the failure is recorded on it, without touching what made it fail.

The step's attempt fails as `error`, which is transient, under the step's policy. If even that cannot be written, the run is
put off and counted; ten times in a row and the next decision gives the step up (lifecycle.md, decision 4).
"""

from __future__ import annotations

import logging
from datetime import timedelta

from sqlalchemy import Connection

from db.session import Database
from db.statements import runs as statements
from engine.core.errors import Refused, Unavailable
from engine.core.faults import is_outage, message_of, place_of
from engine.core.leases import Lease
from engine.core.ledger import Ledger
from engine.core.retry import wait
from engine.directory.facts import Facts
from engine.lifecycle import compensation
from engine.lifecycle.decide import MAX_INTERRUPTIONS, abandon, fail_attempt
from engine.lifecycle.facts import RunFact, RunFacts
from engine.lifecycle.load import load_round, load_runs
from engine.lifecycle.moves import Move
from engine.lifecycle.plans import Plans

log = logging.getLogger("engine.worker")

BACKOFF = timedelta(seconds=5)
"""The first pause of a run whose failure could not be recorded."""


def record_guilty(database: Database, owner: str, plans: Plans, lease: Lease, error: Exception) -> list[Move]:
    """Record the failure of this run. Raises only when the database is away."""
    failure = Unavailable("error", f"the step failed in its own transaction: {message_of(error)}")
    try:
        with database.begin() as connection:
            ledger, moves = Ledger(), []
            for run in load_runs(connection, [lease], owner, plans):
                move = _failed(run, load_round(connection, [run]), failure)
                ledger.add([*move.rows, move.row(owner)])
                moves.append(move)
            ledger.write(connection)
        return moves
    except Exception as second:
        if is_outage(second):
            raise
        what, where = message_of(second), place_of(second)
        log.error("the failure of the run %s could not be recorded: %s at %s", lease.run_id, what, where)
        return _put_off(database, owner, plans, lease)


def _failed(run: RunFact, facts: RunFacts, failure: Unavailable) -> Move:
    if run.state == "compensating":
        attempt = facts.undoable[run.key]
        tries = attempt.compensation_attempts + (not attempt.compensation_is_out)
        return compensation.failed(run, attempt, facts, failure, tries=tries)
    if run.plan is None or run.step_index >= len(run.plan.steps):
        return abandon(run, facts, Refused("definition_unavailable", failure.message))
    return fail_attempt(run, run.plan.steps[run.step_index], facts, failure)


def _put_off(database: Database, owner: str, plans: Plans, lease: Lease) -> list[Move]:
    """The least that can be written: the count, and when the run is tried again. Beyond the limit the run is given up
    from what is known of it alone, without the facts that cannot be loaded or the rows that cannot be written."""
    with database.begin() as connection:
        row = next(iter(statements.lock_leased(connection, [lease.row], owner=owner)), None)
        if row is None:
            return []
        count = row.interruptions + (not lease.is_suspect)  # a suspect has been counted before it was tried
        if count > MAX_INTERRUPTIONS:  # at the limit the next decision gives the step up, if it is reached at all
            return _give_up(connection, owner, plans, lease)
        pause = wait(count, BACKOFF, lease.run_id).total_seconds()
        statements.put_off(connection, lease.row, owner=owner, interruptions=count, pause=pause)
        return []


def _give_up(connection: Connection, owner: str, plans: Plans, lease: Lease) -> list[Move]:
    """A run that does not even fail: it begins to undo what it did, or, if that is what fails, an administrator must."""
    ledger, moves = Ledger(), []
    for run in load_runs(connection, [lease], owner, plans):
        facts = RunFacts(Facts(statements.now(connection)))
        failure = Refused("retries_exhausted", f"the run was interrupted {MAX_INTERRUPTIONS} times in a row")
        move = compensation.stuck(run) if run.state == "compensating" else abandon(run, facts, failure)
        ledger.add([*move.rows, move.row(owner)])
        moves.append(move)
    ledger.write(connection)
    return moves
