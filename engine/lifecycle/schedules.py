"""Schedules: fills the slots that have come, at most 500 subjects a transaction, until the population is covered.

A slot's pointer only grows, by compare and set under a row lock; slots missed in an outage are not caught up: the latest one
is fired and covers the population again (source: "Not offered"; lifecycle.md, "Triggers").
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection

from db.rows import AnyRow
from db.session import Database
from db.statements import schedules as statements
from db.statements.outbox import notify
from db.statements.runs import now
from db.statements.workflows import share_workflow
from engine.core.failpoints import hit
from engine.core.faults import is_outage, message_of, place_of
from engine.core.ledger import Ledger
from engine.core.trail import Cause, audit
from engine.lifecycle.selectors.registry import SELECTORS
from engine.lifecycle.slots import slot_after, slot_at, slots_between
from engine.lifecycle.triggers import NewRun, start

log = logging.getLogger("engine.schedules")

PAGE = 500
"""Subjects a transaction starts runs for at most."""

SCHEMA_VERSION = 1
"""Of the definitions; the input version of runs that no event started."""


@dataclass(frozen=True, slots=True)
class FiredSlot:
    """A slot that came to its end: its population is covered (`complete`), or the next one was due."""

    realm_id: str
    workflow_id: str
    slot: datetime
    started: int
    complete: bool


def fire_due(database: Database, between: Callable[[], bool] = lambda: True) -> list[FiredSlot]:
    """Fill every slot that is due. Returns those that ended. Raises only when the database is away.

    `between` is asked between two pages whether to go on. A schedule that fails, or that somebody else is at, is passed over
    until the next call, so that it holds up no other; nothing of it is lost.
    """
    fired: list[FiredSlot] = []
    passed_over: set[statements.Key] = set()
    while between():
        key = None
        try:
            with database.begin() as connection:
                key = statements.next_due(connection, passed_over)
                if key is None:
                    break
                ended = _page(connection, key)
                hit("schedule.before_commit")
            hit("schedule.after_commit")
        except Exception as error:
            if key is None or is_outage(error):
                raise
            log.error("a schedule of %s failed: %s at %s", key[1], message_of(error), place_of(error))
            ended = None
        if ended is None:
            passed_over.add(key)
        else:
            fired += ended
    return fired


def _page(connection: Connection, key: statements.Key) -> list[FiredSlot] | None:
    """One page of a slot, under the locks of its workflow and its schedule. None when somebody else is at it."""
    share_workflow(connection, key[0], key[1])
    schedule = statements.take(connection, key)
    return None if schedule is None else _fill(connection, schedule)


def _fill(connection: Connection, schedule: AnyRow) -> list[FiredSlot]:
    every = timedelta(seconds=schedule.every_seconds)
    ended: list[FiredSlot] = []
    slot, cursor = schedule.slot_at, schedule.slot_cursor or ""
    started, missed = schedule.slot_started, schedule.slot_missed
    next_slot = schedule.next_slot_at
    if next_slot <= schedule.now:
        if slot is not None:
            ended.append(end_slot(connection, schedule, slot, started, missed, complete=False))
        slot = slot_at(schedule.first_published_at, every, schedule.now)
        missed = slots_between(next_slot, slot, every)
        cursor, started, next_slot = "", 0, slot + every
    model, page = SELECTORS[schedule.selector["type"]]
    selector = model.model_validate(schedule.selector)
    subjects = page(connection, schedule.realm_id, selector, cursor, PAGE)
    started += len(start(connection, [_run(schedule, selector.organization_id, slot, user_id) for user_id in subjects]))
    covered = len(subjects) < PAGE
    progress = {
        "next_slot_at": next_slot,
        "slot_at": None if covered else slot,
        "slot_cursor": None if covered else subjects[-1],
        "slot_started": 0 if covered else started,
        "slot_missed": 0 if covered else missed,
    }
    _save(connection, schedule, progress)
    if covered:
        ended.append(end_slot(connection, schedule, slot, started, missed, complete=True))
    if subjects:
        notify(connection)
    return ended


def _run(schedule: AnyRow, organization_id: str | None, slot: datetime, user_id: str) -> NewRun:
    return NewRun(
        schedule.realm_id,
        schedule.workflow_id,
        schedule.published_revision,
        schedule.publisher_id,
        user_id,
        organization_id,
        "schedule",
        f"slot:{slot.isoformat()}",
        SCHEMA_VERSION,
    )


def end_slot(
    connection: Connection, schedule: AnyRow, slot: datetime, started: int, missed: int, *, complete: bool
) -> FiredSlot:
    """Audit a slot that has come to its end: how many runs it started, whether its population is covered, and how many slots
    before it nobody fired."""
    details = {"slot": slot.isoformat(), "started": started, "complete": complete, "missed": missed}
    ledger = Ledger()
    target = ("workflow", schedule.workflow_id)
    ledger.add([audit(Cause(schedule.realm_id), "workflow.schedule.fired", target, details, category="workflow")])
    ledger.write(connection)
    return FiredSlot(schedule.realm_id, schedule.workflow_id, slot, started, complete)


def end_open_slots(connection: Connection, realm_id: str, workflow_id: str) -> None:
    """End the slots that a workflow is filling, incomplete: its schedules are about to stop, or to be replaced."""
    for schedule in statements.of_workflow(connection, realm_id, workflow_id):
        if schedule.slot_at is not None:
            slot, started, missed = schedule.slot_at, schedule.slot_started, schedule.slot_missed
            end_slot(connection, schedule, slot, started, missed, complete=False)
            _save(connection, schedule, {"slot_at": None, "slot_cursor": None, "slot_started": 0, "slot_missed": 0})


def skip_to_next_slots(connection: Connection, realm_id: str, workflow_id: str, anchor: datetime) -> None:
    """Let the schedules of a workflow go on with their first slots from now: what passed before is not caught up."""
    moment = now(connection)
    for schedule in statements.of_workflow(connection, realm_id, workflow_id):
        next_slot = slot_after(anchor, timedelta(seconds=schedule.every_seconds), moment)
        if next_slot > schedule.next_slot_at:
            _save(connection, schedule, {"next_slot_at": next_slot})


def _save(connection: Connection, schedule: AnyRow, values: Mapping[str, Any]) -> None:
    if statements.save_progress(connection, schedule, values) != 1:
        raise RuntimeError("a schedule that is locked has moved")
