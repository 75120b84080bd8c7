"""From events, slots and people to runs: matching, and starting each run once."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Integer, select, true, union_all
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.types import TypeEngine

from db.json import dumps
from db.rows import AnyRow
from db.statements import gates
from db.statements.bulk import arrays, keys, unnested
from db.tables import EventTrigger, User, Workflow, WorkflowRun, table
from db.tables.columns import ID, WORD

triggers = table(EventTrigger)
workflows = table(Workflow)
users = table(User)
runs = table(WorkflowRun)

_happened = unnested({"number": Integer(), "realm_id": ID, "type": WORD, "organization_id": ID}, "happened")


def _listening_where(organization: Any) -> Any:
    return select(triggers.c.workflow_id).where(
        triggers.c.realm_id == _happened.c.realm_id, triggers.c.event_type == _happened.c.type, organization
    )


# Two look-ups a kind of event, each along the index to its end: neither workflows that listen to another type nor those that
# listen in another organization are read. OFFSET 0 keeps the planner from joining the whole index instead.
_listening = (
    union_all(
        _listening_where(triggers.c.organization_id.is_(None)),
        _listening_where(triggers.c.organization_id == _happened.c.organization_id),
    )
    .offset(0)
    .lateral("listening")
)
_listeners = (
    select(_happened.c.number, _listening.c.workflow_id).select_from(_happened.join(_listening, true())).distinct()
)


def listeners(connection: Connection, kinds: Sequence[tuple[str, str, str | None]]) -> Sequence[AnyRow]:
    """Which workflows listen to these kinds of events (realm, type, organization), by the kind's number."""
    given: dict[str, list[Any]] = {
        "number": list(range(len(kinds))),
        "realm_id": [kind[0] for kind in kinds],
        "type": [kind[1] for kind in kinds],
        "organization_id": [kind[2] for kind in kinds],
    }
    return connection.execute(_listeners, arrays(given)).all()


_keys = unnested({"realm_id": ID, "id": ID}, "wanted")
_active = (
    select(workflows.c.realm_id, workflows.c.id, workflows.c.published_revision, workflows.c.publisher_id)
    .join(_keys, (workflows.c.realm_id == _keys.c.realm_id) & (workflows.c.id == _keys.c.id))
    .where(workflows.c.state == "active")
    .order_by(workflows.c.realm_id, workflows.c.id)
    .with_for_update(of=workflows, read=True)
)
_present = (
    select(users.c.realm_id, users.c.id)
    .join(_keys, (users.c.realm_id == _keys.c.realm_id) & (users.c.id == _keys.c.id))
    .where(users.c.state != "deleted")
)


def active_workflows(connection: Connection, wanted: Collection[tuple[str, str]]) -> Sequence[AnyRow]:
    """Of these workflows, those that fire, with the revision and publisher of a run that starts now; FOR SHARE, so that none is
    disabled or published anew before the runs are there."""
    gates.share(connection, sorted(wanted))
    return connection.execute(_active, keys(wanted)).all()


def present_users(connection: Connection, wanted: Collection[tuple[str, str]]) -> set[tuple[str, str]]:
    """Of these users, those that can be a subject."""
    return {(row.realm_id, row.id) for row in connection.execute(_present, keys(wanted))}


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
