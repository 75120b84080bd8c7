"""The figures that operators watch, of all realms together, in one statement: what waits and since when, and what is stuck.

Each is read from an index that holds nothing but what it counts, and counting stops at `MOST`. What is due is looked for realm by
realm, as a claim does it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Float,
    Integer,
    Label,
    Row,
    ScalarSelect,
    Select,
    bindparam,
    func,
    literal_column,
    select,
    true,
)

from db.statements.reads_pages import word
from db.tables import (
    Approval,
    Message,
    OutboxEvent,
    Realm,
    ScheduleTrigger,
    WebhookSubscription,
    Workflow,
    WorkflowRun,
    table,
)
from db.tables.columns import WORD

MOST = 20_000
"""More of anything than this is counted as this many: the worst day is the one on which the figures must come in time."""

realms = table(Realm)
workflows = table(Workflow)
runs = table(WorkflowRun)
approvals = table(Approval)
events = table(OutboxEvent)
messages = table(Message)
schedules = table(ScheduleTrigger)
subscriptions = table(WebhookSubscription)

_one = literal_column("1", Integer)
_now = func.statement_timestamp()


def _number(rows: Select[Any]) -> ScalarSelect[int]:
    return select(func.count()).select_from(rows.limit(MOST).subquery()).scalar_subquery()


def _seconds_since(moment: Select[Any]) -> ColumnElement[float]:
    """Zero when there is no such moment, or not yet."""
    passed = func.extract("epoch", _now - moment.scalar_subquery()).cast(Float)
    return func.greatest(func.coalesce(passed, 0.0), 0.0)


def _in_each_realm(rows: Select[Any]) -> Select[Any]:
    each = rows.limit(MOST).correlate(realms).lateral("each")
    return select(_one).select_from(realms.join(each, true()))


_due = select(runs.c.due_at).where(runs.c.realm_id == realms.c.id, runs.c.due_at <= _now).order_by(runs.c.due_at)
_first_due = _due.limit(1).correlate(realms).lateral("first_due")
_waiting = (events.c.dispatched_at.is_(None), events.c.set_aside_at.is_(None))
_of_active = (workflows.c.realm_id == schedules.c.realm_id) & (workflows.c.id == schedules.c.workflow_id)

_FIGURES: tuple[Label[Any], ...] = (
    _number(_in_each_realm(_due)).label("runs_due"),
    _seconds_since(select(func.min(_first_due.c.due_at)).select_from(realms.join(_first_due, true()))).label(
        "runs_oldest_due_seconds"
    ),
    _number(select(_one).where(runs.c.lease_owner.is_not(None), runs.c.lease_expires_at <= _now)).label(
        "leases_expired"
    ),
    _number(
        _in_each_realm(select(_one).where(approvals.c.realm_id == realms.c.id, approvals.c.state == word("pending")))
    ).label("approvals_pending"),
    _number(select(_one).where(*_waiting)).label("outbox_waiting"),
    _seconds_since(select(func.min(events.c.due_at)).where(*_waiting)).label("outbox_oldest_waiting_seconds"),
    _number(select(_one).where(events.c.set_aside_at.is_not(None))).label("outbox_set_aside"),
    _number(select(_one).where(messages.c.due_at.is_not(None))).label("messages_queued"),
    _seconds_since(
        select(schedules.c.next_slot_at)
        .join(workflows, _of_active)
        .where(workflows.c.state == word("active"), schedules.c.next_slot_at <= _now)
        .order_by(schedules.c.next_slot_at)
        .limit(1)
    ).label("schedules_lateness_seconds"),
    _number(select(_one).where(schedules.c.slot_at.is_not(None))).label("slots_being_filled"),
    _number(select(_one).where(subscriptions.c.state == word("disabled"))).label("subscriptions_disabled"),
)
_figures = select(*_FIGURES)

_unfinished = (
    select(runs.c.state)
    .where(runs.c.due_at.is_not(None))
    .limit(MOST)
    .subquery()
    .select()
    .union_all(select(runs.c.state).where(runs.c.paused).limit(MOST).subquery().select())
    .subquery("unfinished")
)
_by_state = select(_unfinished.c.state, func.count().label("runs")).group_by(_unfinished.c.state)
_patience = select(func.set_config(literal_column("'statement_timeout'"), bindparam("patience", type_=WORD), true()))


def be_patient_for(connection: Connection, patience: timedelta) -> None:
    """No statement of this transaction takes longer."""
    connection.execute(_patience, {"patience": str(patience // timedelta(milliseconds=1))})


def figures(connection: Connection) -> Row[Any]:
    """One row; a column is a figure, in pieces or seconds."""
    return connection.execute(_figures).one()


def unfinished_runs(connection: Connection) -> Sequence[Row[Any]]:
    """How many runs are in each state that is not an end. Of more than `MOST`, some are left out."""
    return connection.execute(_by_state).all()
