"""Driving the engine in the test's own process, on a real database: passes until nothing is left to do, and time travel.

with working(database) as worker:            a worker, closed at the end
    drain(worker, acme)                      passes until nothing of the realm is due, held or undispatched
age(acme, run, hours=1)                      everything about the run happened an hour earlier
run_of / attempts_of / trail_of / events_of  what is recorded of a run
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from sqlalchemy import Row, text

from db.session import Database
from engine.core import ids
from engine.core.settings import DeliverySettings, EngineSettings, MailSettings, WorkerSettings
from engine.lifecycle.triggers import NewRun, start
from engine.lifecycle.worker import PassReport, Worker
from tests.factories import KEYRING, TestRealm, unique

AnyRow = Row[Any]

DELIVERY = DeliverySettings(allow_private_egress=True)
"""Endpoints of tests are on this machine."""


@contextmanager
def working(
    database: Database, *, delivery: DeliverySettings = DELIVERY, mail: MailSettings | None = None, **workers: Any
) -> Iterator[Worker]:
    """A worker; `workers` are members of WorkerSettings."""
    settings = EngineSettings(
        workers=WorkerSettings(**workers), delivery=delivery, mail=mail or MailSettings(host=None)
    )
    worker = Worker.open(database, settings, KEYRING)
    try:
        yield worker
    finally:
        worker.close()


def emptied(database: Database) -> Database:
    """The same database without a row: as good as a fresh one, at a tenth of the time."""
    owner(database, "TRUNCATE realms CASCADE")
    return database


_BUSY = text(
    "SELECT EXISTS (SELECT 1 FROM workflow_runs WHERE realm_id = :realm"
    "               AND (lease_owner IS NOT NULL OR due_at <= clock_timestamp()))"
    " OR EXISTS (SELECT 1 FROM outbox_events WHERE realm_id = :realm"
    "            AND dispatched_at IS NULL AND set_aside_at IS NULL AND due_at <= clock_timestamp())"
)


def drain(worker: Worker, realm: TestRealm, *, within: float = 20.0) -> list[PassReport]:
    """Passes until no run of the realm is due or held (a call is out, then) and no event waits. Fails after `within` s."""
    reports, deadline, never = [], time.monotonic() + within, threading.Event()
    while True:
        reports.append(worker.run_pass())
        with realm.database.begin() as connection:
            if not connection.execute(_BUSY, {"realm": realm.id}).scalar_one():
                return reports
        assert time.monotonic() < deadline, f"the realm is still busy after {within} s: {reports[-1]}"
        if reports[-1].idle:
            worker.wait(never)


def many_runs(
    realm: TestRealm, workflow_id: str, subjects: Sequence[str], organization: str | None = None
) -> list[str]:
    """Runs of the published revision 1 for all of them at once, as the administrator would start them by hand."""
    runs = [
        NewRun(
            realm.id,
            workflow_id,
            1,
            realm.admin,
            subject,
            organization,
            "manual",
            f"manual:{ids.new(ids.Prefix.RUN)}",
            1,
        )
        for subject in subjects
    ]
    with realm.database.begin() as connection:
        return start(connection, runs)


def until(condition: Callable[[], Any], *, within: float = 10.0) -> Any:
    """Ask until the answer is true, and return it. Fails after `within` seconds."""
    deadline = time.monotonic() + within
    while not (answer := condition()):
        assert time.monotonic() < deadline, f"nothing came of it within {within} s"
        time.sleep(0.01)
    return answer


def waiting(realm: TestRealm, count: int = 1) -> bool:
    """Whether so many transactions of the realm's database wait for a lock."""
    query = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    with realm.database.owner_engine.begin() as connection:
        return len(connection.exec_driver_sql(query).all()) == count


def owner(database: Database, statement: str, **given: Any) -> int:
    """One statement as the owner of the tables, committed. Returns how many rows it hit."""
    with database.owner_engine.begin() as connection:
        return int(connection.execute(text(statement), given).rowcount)


@contextmanager
def trigger(database: Database, on: str, does: str, when: str = "true") -> Iterator[None]:
    """A trigger of the database's own until the block ends: `on` as in "BEFORE DELETE ON users", `does` in PL/pgSQL."""
    name = unique("t").replace("-", "_")
    with database.owner_engine.begin() as connection:
        body = f"$$ BEGIN {does} END $$"
        connection.exec_driver_sql(
            f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS {body}"
        )
        connection.exec_driver_sql(f"CREATE TRIGGER {name} {on} FOR EACH ROW WHEN ({when}) EXECUTE FUNCTION {name}()")
    try:
        yield
    finally:
        owner(database, f"DROP FUNCTION {name} CASCADE")


@contextmanager
def constraint(database: Database, table: str, check: str) -> Iterator[None]:
    """A constraint of the database's own on what is written until the block ends."""
    name = unique("c").replace("-", "_")
    owner(database, f"ALTER TABLE {table} ADD CONSTRAINT {name} CHECK ({check}) NOT VALID")
    try:
        yield
    finally:
        owner(database, f"ALTER TABLE {table} DROP CONSTRAINT {name}")


CUT_OFF = "PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NEW;"
"""What a trigger does to lose the connection of whoever wrote the row, as an outage would."""


def rows(database: Database, statement: str, **given: Any) -> list[AnyRow]:
    """What a query finds."""
    with database.begin() as connection:
        return list(connection.execute(text(statement), given).all())


_AGING = (
    """UPDATE workflow_runs SET due_at = due_at - :by, lease_expires_at = lease_expires_at - :by,
         created_at = created_at - :by, finished_at = finished_at - :by WHERE realm_id = :realm AND id = :run""",
    """UPDATE workflow_step_attempts SET started_at = started_at - :by, finished_at = finished_at - :by
       WHERE realm_id = :realm AND run_id = :run""",
    """UPDATE workflow_step_attempts
       SET input = jsonb_set(input, '{until}', to_jsonb((input ->> 'until')::timestamptz - :by))
       WHERE realm_id = :realm AND run_id = :run AND input ? 'until'""",
    """UPDATE workflow_approvals SET expires_at = expires_at - :by, ended_at = ended_at - :by
       WHERE realm_id = :realm AND run_id = :run""",
)


def age(realm: TestRealm, run_id: str, **by: float) -> None:
    """Move everything about a run into the past: when it is due, its lease, waits, approvals. `by` as of timedelta."""
    given = {"realm": realm.id, "run": run_id, "by": timedelta(**by)}
    with realm.database.owner_engine.begin() as connection:
        for statement in _AGING:
            connection.execute(text(statement), given)


def wake(realm: TestRealm, run_id: str) -> None:
    """The run is due now, and nothing else about it has changed. It must be in nobody's hands."""
    hit = owner(
        realm.database,
        "UPDATE workflow_runs SET due_at = clock_timestamp() WHERE realm_id = :realm AND id = :run"
        " AND lease_owner IS NULL AND due_at IS NOT NULL",
        realm=realm.id,
        run=run_id,
    )
    assert hit == 1, "the run was not waiting"


def run_of(realm: TestRealm, run_id: str) -> AnyRow:
    """The run's row."""
    query = "SELECT * FROM workflow_runs WHERE realm_id = :realm AND id = :run"
    (row,) = rows(realm.database, query, realm=realm.id, run=run_id)
    return row


def attempts_of(realm: TestRealm, run_id: str) -> list[AnyRow]:
    """The run's attempts, in the order of steps and tries."""
    query = (
        "SELECT * FROM workflow_step_attempts WHERE realm_id = :realm AND run_id = :run ORDER BY step_index, attempt"
    )
    return rows(realm.database, query, realm=realm.id, run=run_id)


def approval_of(realm: TestRealm, run_id: str) -> AnyRow:
    """The run's latest approval."""
    query = (
        "SELECT * FROM workflow_approvals WHERE realm_id = :realm AND run_id = :run ORDER BY step_index DESC LIMIT 1"
    )
    (row,) = rows(realm.database, query, realm=realm.id, run=run_id)
    return row


def audit_of(realm: TestRealm, run_id: str) -> list[AnyRow]:
    """The audit rows of a run and of what it did, in the order in which they were written."""
    query = (
        "SELECT * FROM audit_events WHERE realm_id = :realm AND (correlation_id = :run OR target_id = :run)"
        " ORDER BY position"
    )
    return rows(realm.database, query, realm=realm.id, run=run_id)


def trail_of(realm: TestRealm, run_id: str, prefix: str = "workflow.") -> list[str]:
    """The types of its audit rows."""
    return [row.type for row in audit_of(realm, run_id) if row.type.startswith(prefix)]


def events_of(realm: TestRealm, run_id: str) -> list[AnyRow]:
    """The outbox events that a run caused."""
    query = "SELECT * FROM outbox_events WHERE realm_id = :realm AND correlation_id = :run ORDER BY position"
    return rows(realm.database, query, realm=realm.id, run=run_id)


def outcome(realm: TestRealm, run_id: str) -> tuple[str, str | None]:
    """State and error category of a run."""
    row = run_of(realm, run_id)
    return row.state, row.error_category
