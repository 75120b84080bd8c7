"""Triggers: what starts runs. One run per trigger key, workflow and subject, by a unique index.

event      `event:<outbox id>`, in the dispatcher's transaction
schedule   `slot:<moment>`, see schedules
manual     `manual:<chance>`, see runs
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection

from db.rows import AnyRow
from db.statements import triggers as statements
from engine.core import ids
from engine.core.ledger import Ledger, Row
from engine.core.trail import Cause, audit
from engine.outbox.dispatch import Event

MAX_DEPTH = 3
"""A run that another run's event started is one deeper; deeper than this none is started (source: "Loop protection")."""


Kind = tuple[str, str, str | None]
"""Realm, type and organization of an event."""


@dataclass(frozen=True, slots=True)
class NewRun:
    """A run to be started."""

    realm_id: str
    workflow_id: str
    revision: int
    publisher_id: str
    subject_id: str
    organization_id: str | None
    trigger_type: str
    trigger_key: str
    input_version: int
    starter_id: str | None = None
    event_type: str | None = None
    event_id: str | None = None
    depth: int = 0
    correlation_id: str | None = None

    def row(self) -> dict[str, Any]:
        """The run's row. Its input is identifiers only."""
        given = {
            "user_id": self.subject_id,
            "organization_id": self.organization_id,
            "event_id": self.event_id,
            "event_type": self.event_type,
        }
        return {
            "realm_id": self.realm_id,
            "id": ids.new(ids.Prefix.RUN),
            "workflow_id": self.workflow_id,
            "revision": self.revision,
            "publisher_id": self.publisher_id,
            "starter_id": self.starter_id,
            "subject_id": self.subject_id,
            "organization_id": self.organization_id,
            "trigger_type": self.trigger_type,
            "trigger_key": self.trigger_key,
            "event_type": self.event_type,
            "event_id": self.event_id,
            "input": {name: value for name, value in given.items() if value is not None},
            "input_version": self.input_version,
            "depth": self.depth,
        }


def start(connection: Connection, runs: Sequence[NewRun]) -> list[str]:
    """Start these runs, and audit those that were not there before. Returns their ids."""
    if not runs:
        return []
    rows = [run.row() for run in runs]
    about = {(row["realm_id"], row["id"]): run for row, run in zip(rows, runs, strict=True)}
    started = [(row.realm_id, row.id) for row in statements.insert_runs(connection, rows)]
    ledger = Ledger()
    ledger.add(_started(about[key], key[1]) for key in started)
    ledger.write(connection)
    return [run_id for _, run_id in started]


def _started(run: NewRun, run_id: str) -> Row:
    """On the account of whoever started it by hand, else of the publisher, who answers for the run in any case."""
    actor_id = run.starter_id or run.publisher_id
    cause = Cause(run.realm_id, "user", actor_id, request_id=run_id, correlation_id=run_id, workflow_id=run.workflow_id)
    details = {
        "workflow_id": run.workflow_id,
        "revision": run.revision,
        "subject_id": run.subject_id,
        "trigger": run.trigger_type,
        "publisher_id": run.publisher_id,
        "event_id": run.event_id,
        "caused_by": run.correlation_id,
    }
    return audit(cause, "workflow.run.started", ("run", run_id), details, category="workflow")


def start_for_events(connection: Connection, events: Sequence[Event]) -> int:
    """Start the runs that these events trigger; the consumer of the outbox dispatcher. Returns how many."""
    runs: list[NewRun] = []
    suppressed = Ledger()
    for event, workflow in _matches(connection, events):
        assert event.user_id is not None
        depth = 0 if event.caused_by_workflow is None else event.depth + 1
        if event.caused_by_workflow == workflow.id or depth > MAX_DEPTH:
            suppressed.add([_suppressed(event, workflow.id, depth)])
            continue
        runs.append(
            NewRun(
                event.realm_id,
                workflow.id,
                workflow.published_revision,
                workflow.publisher_id,
                event.user_id,
                event.organization_id,
                "event",
                f"event:{event.id}",
                event.event_version,
                event_type=event.type,
                event_id=event.id,
                depth=depth,
                correlation_id=event.correlation_id,
            )
        )
    suppressed.write(connection)
    return len(start(connection, runs))


def _matches(connection: Connection, events: Sequence[Event]) -> Iterator[tuple[Event, AnyRow]]:
    """Each event about a user who is there, with each active workflow that listens to it."""
    kinds = list(dict.fromkeys((event.realm_id, event.type, event.organization_id) for event in events))
    wanted = {(kind[0], workflow_id) for kind, found in _listening(connection, kinds).items() for workflow_id in found}
    if not wanted:
        return
    active = {(row.realm_id, row.id): row for row in statements.active_workflows(connection, wanted)}
    # Asked again under their locks: the revision that is in force now may listen to something else than the one before.
    listening = _listening(connection, kinds) if active else {}
    subjects = {(event.realm_id, event.user_id) for event in events if event.user_id is not None}
    present = statements.present_users(connection, subjects) if active else set()
    for event in events:
        if (event.realm_id, event.user_id) in present:
            for workflow_id in sorted(listening.get((event.realm_id, event.type, event.organization_id), ())):
                if (workflow := active.get((event.realm_id, workflow_id))) is not None:
                    yield event, workflow


def _listening(connection: Connection, kinds: Sequence[Kind]) -> dict[Kind, list[str]]:
    """Which workflows listen to these kinds of events."""
    listening: dict[Kind, list[str]] = {}
    for row in statements.listeners(connection, kinds):
        listening.setdefault(kinds[row.number], []).append(row.workflow_id)
    return listening


def _suppressed(event: Event, workflow_id: str, depth: int) -> Row:
    cause = Cause(event.realm_id, request_id=event.correlation_id, correlation_id=event.correlation_id)
    details = {"reason": "WORKFLOW_LOOP", "event_id": event.id, "event_type": event.type, "depth": depth}
    return audit(cause, "workflow.trigger.suppressed", ("workflow", workflow_id), details, category="workflow")
