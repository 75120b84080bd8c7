"""Dispatch: what the outbox holds is given to its consumer, in one transaction with the mark that it was.

A batch that fails is done again event by event under savepoints, so that one bad event holds up no other; an event that fails
ten times is set aside with its error and audited (lifecycle.md, decision 3).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import Connection

from db.session import Database
from db.statements import outbox as statements
from db.statements.runs import now
from engine.core.failpoints import hit
from engine.core.faults import is_contention, is_outage, message_of
from engine.core.ledger import Ledger
from engine.core.retry import wait
from engine.core.trail import Cause, audit

log = logging.getLogger("engine.dispatch")

BATCH = 500
"""Events a transaction takes at most."""

MAX_ATTEMPTS = 10
"""Failures after which an event is set aside."""

BACKOFF = timedelta(seconds=1)
"""The first wait before a failed event is dispatched again."""


@dataclass(frozen=True, slots=True)
class Event:
    """An event of the outbox."""

    realm_id: str
    id: str
    type: str
    event_version: int
    user_id: str | None
    organization_id: str | None
    correlation_id: str | None
    caused_by_workflow: str | None
    depth: int
    attempts: int


Consumer = Callable[[Connection, Sequence[Event]], int]
"""Takes events inside the dispatcher's transaction; returns how many runs it started."""


@dataclass(frozen=True, slots=True)
class Dispatched:
    """What a dispatch came to."""

    events: int = 0
    started: int = 0
    failed: int = 0

    @property
    def was_full(self) -> bool:
        """Whether more may be waiting."""
        return self.events + self.failed >= BATCH


def dispatch(database: Database, consumer: Consumer) -> Dispatched:
    """Dispatch up to BATCH events. Raises only when the database is away."""
    try:
        with database.begin() as connection:
            events = [Event(*tuple(row)) for row in statements.take_undispatched(connection, BATCH)]
            if not events:
                return Dispatched()
            started = consumer(connection, events)
            hit("dispatch.after_match")
            statements.mark_dispatched(connection, [(event.realm_id, event.id) for event in events])
            hit("dispatch.before_commit")
        hit("dispatch.after_commit")
        return Dispatched(len(events), started)
    except Exception as error:
        if is_outage(error):
            raise
        log.warning("a dispatch failed and is done again event by event: %s", type(error).__name__)
        return _one_by_one(database, consumer)


def _one_by_one(database: Database, consumer: Consumer) -> Dispatched:
    done = started = failed = 0
    with database.begin() as connection:
        for row in statements.take_undispatched(connection, BATCH):
            event = Event(*tuple(row))
            try:
                with connection.begin_nested():
                    started += consumer(connection, [event])
                    statements.mark_dispatched(connection, [(event.realm_id, event.id)])
                done += 1
            except Exception as error:
                if is_outage(error):
                    raise
                failed += 1
                if not is_contention(error):  # that is nobody's fault, and counts against nobody
                    _record_failure(connection, event, error)
    return Dispatched(done, started, failed)


def _record_failure(connection: Connection, event: Event, error: Exception) -> None:
    attempts, moment = event.attempts + 1, now(connection)
    given_up = attempts >= MAX_ATTEMPTS
    statements.RECORD_FAILURE.run(
        connection,
        [
            {
                "realm_id": event.realm_id,
                "id": event.id,
                "attempts": attempts,
                "due_at": moment + wait(attempts, BACKOFF, event.id),
                "set_aside_at": moment if given_up else None,
                "last_error": message_of(error),
            }
        ],
    )
    if given_up:
        ledger = Ledger()
        details = {"reason": "DISPATCH_FAILED", "event_type": event.type, "attempts": attempts}
        cause = Cause(event.realm_id, correlation_id=event.correlation_id)
        ledger.add([audit(cause, "workflow.trigger.suppressed", ("outbox_event", event.id), details, "workflow")])
        ledger.write(connection)
