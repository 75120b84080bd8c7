"""A worker in a thread that stops where it is told to, in front of any statement, until it is told to go on.

What stops it hangs on its connections: the worker knows nothing of it, and nobody else stops.

    with a_racer(database) as racer:
        work = racer.sets_out(acme, BETWEEN)      passes until the realm is idle, with a stop on the way
        racer.stopped(work)
        ...
        racer.goes_on()
        racer.waits_for_a_row(work)
        work.result()
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, event

from db.session import Database
from engine.lifecycle.worker import Worker
from tests.driver import drain, until, working
from tests.factories import TestRealm

BEFORE = -2
"""In front of the claim."""

ENDING = -1
"""In front of the commit of the first round."""

BETWEEN = 0
"""Behind the commit of the claim, in front of the first round. What is greater is so many statements further on, commits
included."""

NAME = "racer"
"""What the racer's connections call themselves."""


@dataclass
class Stop:
    """Counts what one thread sends to the database, and holds the thread once, at `at`."""

    thread: int = 0
    at: int | None = None
    seen: int | None = None
    claiming: bool = False
    reached: threading.Event = field(default_factory=threading.Event)
    go: threading.Event = field(default_factory=threading.Event)

    def arm(self, at: int) -> None:
        """Stop at the next such place. The count begins at the next claim."""
        self.reached.clear()
        self.go.clear()
        self.seen, self.at = None, at

    def statement(self, text: str) -> None:
        """The thread is about to send this."""
        if threading.get_ident() != self.thread:
            return
        if self.seen is None and text.startswith("WITH claimed"):
            self._here(BEFORE)
            self.claiming, self.seen = True, BETWEEN
        elif self.claiming:  # this is the claim's own commit
            self.claiming = False
        elif self.seen is not None:
            self._here(ENDING if text == "COMMIT" and self.at == ENDING else self.seen)
            self.seen += 1

    def _here(self, place: int) -> None:
        if place == self.at:
            self.at = None
            self.reached.set()
            assert self.go.wait(60), "nobody let the worker go on"


@dataclass
class Racer:
    """A worker in a thread of its own, on connections of its own."""

    worker: Worker
    thread: ThreadPoolExecutor
    stop: Stop
    watch: Connection

    def sets_out(self, realm: TestRealm, at: int) -> Future[Any]:
        """Work until the realm is idle, with a stop at `at`."""
        self.stop.arm(at)
        return self.thread.submit(drain, self.worker, realm, within=60)

    def stopped(self, work: Future[Any]) -> None:
        """Wait until it has come to its stop, or is home without having come that far."""
        until(lambda: self.stop.reached.is_set() or work.done(), within=60)

    def goes_on(self) -> None:
        """From its stop."""
        self.stop.go.set()

    def waits_for_a_row(self, work: Future[Any]) -> None:
        """Wait until it waits for a row that somebody else has, or is home without having had to."""
        until(lambda: work.done() or waiting(self.watch, NAME), within=60)


def waiting(watch: Connection, name: str) -> int:
    """How many connections of that application wait for a lock."""
    query = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
        " AND application_name = %s AND wait_event_type = 'Lock'"
    )
    return int(watch.exec_driver_sql(query, (name,)).scalar_one())


@contextmanager
def watching(database: Database) -> Iterator[Connection]:
    """A connection that sees what others wait for at the moment: within one transaction it would see it once."""
    with database.owner_engine.connect().execution_options(isolation_level="AUTOCOMMIT") as watch:
        yield watch


@contextmanager
def a_racer(database: Database, *, rewrite: Callable[[str], str] = str) -> Iterator[Racer]:
    """A worker to be stopped. `rewrite` changes the statements that it sends: what a worker would do that is not ours."""
    own, stop = Database(database.owner_url, database.app_url, database.settings, application_name=NAME), Stop()

    def before(_: Any, __: Any, text: str, given: Any, ___: Any, ____: bool) -> tuple[str, Any]:
        stop.statement(text)
        return rewrite(text), given

    event.listen(own.engine, "before_cursor_execute", before, retval=True)
    event.listen(own.engine, "commit", lambda _: stop.statement("COMMIT"))
    with closing(own), watching(database) as watch, ThreadPoolExecutor(1) as thread:
        stop.thread = thread.submit(threading.get_ident).result()
        with working(own) as worker:
            try:
                yield Racer(worker, thread, stop, watch)
            finally:
                stop.go.set()
