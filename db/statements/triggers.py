"""From events, slots and people to runs: matching, and starting each run once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Integer, or_, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.types import TypeEngine

from db.json import dumps
from db.rows import AnyRow
from db.statements.bulk import arrays, unnested
from db.tables import EventTrigger, User, Workflow, WorkflowRun, table
from db.tables.columns import ID, WORD

triggers = table(EventTrigger)
workflows = table(Workflow)
users = table(User)
runs = table(WorkflowRun)

_events = unnested(
    {"number": Integer(), "realm_id": ID, "type": WORD, "user_id": ID, "organization_id": ID}, "happened"
)
_match = (
    select(
        _events.c.number,
        workflows.c.id.label("workflow_id"),
        workflows.c.published_revision,
        workflows.c.publisher_id,
    )
    .select_from(_events)
    .join(
        triggers,
        (triggers.c.realm_id == _events.c.realm_id)
        & (triggers.c.event_type == _events.c.type)
        & or_(triggers.c.organization_id.is_(None), triggers.c.organization_id == _events.c.organization_id),
    )
    .join(workflows, (workflows.c.realm_id == triggers.c.realm_id) & (workflows.c.id == triggers.c.workflow_id))
    .join(users, (users.c.realm_id == _events.c.realm_id) & (users.c.id == _events.c.user_id))
    .where(workflows.c.state == "active", users.c.state != "deleted")
    .distinct()
    .order_by(_events.c.number, workflows.c.id)
)


def match_events(connection: Connection, events: Sequence[Mapping[str, Any]]) -> Sequence[AnyRow]:
    """Which active workflows these events trigger: by realm and type, never by reading every workflow."""
    given = {
        "number": list(range(len(events))),
        **{name: [event[name] for event in events] for name in ("realm_id", "type", "user_id", "organization_id")},
    }
    return connection.execute(_match, arrays(given)).all()


_columns: dict[str, TypeEngine[Any]] = {
    "realm_id": ID,
    "id": ID,
    "workflow_id": ID,
    "revision": Integer(),
    "publisher_id": ID,
    "starter_id": ID,
    "subject_id": ID,
    "organization_id": ID,
    "trigger_type": WORD,
    "trigger_key": ID,
    "event_type": WORD,
    "event_id": ID,
    "input": runs.c.input.type,
    "input_version": Integer(),
    "depth": Integer(),
}
_given = unnested(_columns)
_insert_runs = (
    insert(runs)
    .from_select(
        list(_columns),
        select(*[_given.c[name].cast(runs.c.input.type) if name == "input" else _given.c[name] for name in _columns]),
        include_defaults=False,
    )
    .on_conflict_do_nothing(constraint="workflow_runs_once")
    .returning(runs.c.realm_id, runs.c.id)
)


def insert_runs(connection: Connection, rows: Sequence[Mapping[str, Any]]) -> Sequence[AnyRow]:
    """Start runs, due at once. One that exists for the workflow, trigger key and subject is passed over, not returned."""
    given: dict[str, list[Any]] = {name: [row[name] for row in rows] for name in _columns}
    given["input"] = [dumps(value) for value in given["input"]]
    return connection.execute(_insert_runs, arrays(given)).all()
