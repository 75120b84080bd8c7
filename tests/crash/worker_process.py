"""A real worker process without Prefect: `python -m tests.crash.worker_process --database-url postgresql://...`

Opens a Worker and makes passes until SIGTERM, then hands its leases back. Settings come from the environment
(TENURE_LEASE_DURATION, TENURE_FAILPOINT, ...). It tells what it does on standard output, a line each:

    READY <owner>     the worker listens
    PASS <number>     a pass is over
    AWAY <error>      a pass failed because the database was away
    FAULT <error>     a pass failed for any other reason; the traceback follows
    GONE <count>      it has handed back that many leases and leaves

SIGUSR1 has it tell where each of its threads is.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import signal
import sys
import threading
import traceback
from pathlib import Path

from sqlalchemy import make_url

from db.session import Database
from db.settings import DatabaseSettings, with_driver
from engine.core import failpoints
from engine.core.faults import is_outage
from engine.core.settings import EngineSettings
from engine.egress.secrets import Keyring
from engine.lifecycle.schedules import fire_due
from engine.lifecycle.worker import Worker

NOWHERE = Path("/nonexistent")
"""Instead of a data folder: the keys come from TENURE_SECRET_KEYS."""


def writer() -> str:
    """The application name of this worker's connections: invariants.sql tells by it who wrote a row."""
    return f"worker {os.getpid()}"


def work(database_url: str, *, schedules: bool) -> None:
    """Make passes until SIGTERM. With `schedules` each pass also fires what is due, as fire-schedules would."""
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    failpoints.arm(os.environ.get("TENURE_FAILPOINT", ""))
    settings, stop = EngineSettings(), threading.Event()
    app_url = make_url(with_driver(database_url))
    database = Database(None, app_url, DatabaseSettings(data_dir=NOWHERE), application_name=writer())
    worker = _opened(database, settings, stop)
    if worker is None:
        return

    def leave(*_: object) -> None:
        stop.set()
        worker.wake()

    signal.signal(signal.SIGTERM, leave)
    tell("READY", worker.owner)
    number = 0
    while not stop.is_set():
        try:
            if schedules:
                fire_due(database)
            worker.run_pass()
            number += 1
            tell("PASS", number)
            worker.wait(stop)
        except Exception as error:
            tell_error(error)
            stop.wait(0.1)
    while True:
        try:
            tell("GONE", worker.close())
            return
        except Exception as error:
            tell_error(error)
            if not is_outage(error):
                raise


def _opened(database: Database, settings: EngineSettings, stop: threading.Event) -> Worker | None:
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    while not stop.is_set():
        try:
            return Worker.open(database, settings, Keyring.load(NOWHERE))
        except Exception as error:
            tell("AWAY", type(error).__name__)
            stop.wait(0.1)
    return None


def tell(word: str, what: object) -> None:
    """A line for whoever watches."""
    sys.stdout.write(f"{word} {what}\n")
    sys.stdout.flush()


def tell_error(error: Exception) -> None:
    """An outage in a word; anything else with all that is known of it."""
    if is_outage(error):
        tell("AWAY", type(error).__name__)
    else:
        tell("FAULT", f"{type(error).__name__}\n{''.join(traceback.format_exception(error))}")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--database-url", required=True)
    parser.add_argument("--schedules", action="store_true")
    given = parser.parse_args(arguments)
    work(given.database_url, schedules=given.schedules)


if __name__ == "__main__":
    main()
