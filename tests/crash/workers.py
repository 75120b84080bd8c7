"""Worker processes as a test sees them: started, waited for, stopped, killed."""

from __future__ import annotations

import base64
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import URL

from db.session import Database
from tests.database import plain

ROOT = Path(__file__).resolve().parents[2]

ENVIRONMENT: Mapping[str, str] = {
    "TENURE_LEASE_DURATION": "PT4S",
    "TENURE_WEBHOOK_TIMEOUT": "PT2S",
    "TENURE_POLL_INTERVAL": "PT0.2S",
    "TENURE_ALLOW_PRIVATE_EGRESS": "true",
    "TENURE_SECRET_KEYS": f"test:{base64.b64encode(bytes(32)).decode()}",
}
"""What every worker is started with: the shortest lease that a call of 2 s fits in, and the keys of tests.factories."""

FAULT = re.compile(r"^FAULT |failed in (its own transaction|our code)", re.MULTILINE)
"""What a worker tells, or logs, when the fault is not the database's absence."""

PATIENCE = 60.0
"""Seconds a test waits for what must come, at most."""


def until(reached: Callable[[], Any], what: str, *, within: float = PATIENCE, every: float = 0.01) -> Any:
    """Poll until `reached` gives something true, and return that. Fails with `what` when the time is up."""
    deadline = time.monotonic() + within
    while not (found := reached()):
        assert time.monotonic() < deadline, f"not within {within:g} s: {what}"
        time.sleep(every)
    return found


@dataclass(eq=False)
class WorkerProcess:
    """One worker process."""

    pid: int
    log: Path
    launcher: Launcher

    @property
    def status(self) -> int | None:
        """None while it lives (stopped or not), else its exit status or the signal that killed it, negative."""
        return self.launcher.status(self.pid)

    @property
    def said(self) -> str:
        """All it has told so far."""
        return self.log.read_text() if self.log.exists() else ""

    @property
    def passes(self) -> int:
        """How many passes it has made."""
        return self.said.count("\nPASS ")

    @property
    def is_stopped(self) -> bool:
        """Whether it is stopped (SIGSTOP)."""
        state = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state in ("T", "t")

    def wait(self, reached: Callable[[], Any], what: str, *, within: float = PATIENCE) -> Any:
        """Poll until `reached` gives something true while it lives. Fails with what it has told, and where it is."""
        deadline = time.monotonic() + within
        while not (found := reached()):
            assert self.status is None, f"the worker has ended ({self.status}) before {what}:\n{self.said}"
            assert time.monotonic() < deadline, f"not within {within:g} s: {what}:\n{self.told_where()}"
            time.sleep(0.01)
        return found

    @property
    def is_ready(self) -> bool:
        """Whether it listens."""
        return "READY " in self.said

    def wait_ready(self) -> WorkerProcess:
        """Until it listens."""
        self.wait(lambda: self.is_ready, "it is ready")
        return self

    def wait_ended(self, within: float = PATIENCE) -> int:
        """Until it has ended, by whatever. Returns how."""
        deadline = time.monotonic() + within
        while (status := self.status) is None:
            assert time.monotonic() < deadline, f"the worker does not end within {within:g} s:\n{self.told_where()}"
            time.sleep(0.01)
        return status

    def told_where(self) -> str:
        """All it has told, and where its threads are."""
        self.send(signal.SIGUSR1)
        time.sleep(0.2)
        return self.said

    def wait_passes(self, more: int) -> None:
        """Until it has made so many more passes."""
        before = self.passes
        self.wait(lambda: self.passes >= before + more, f"{more} more passes")

    def wait_stopped(self) -> None:
        """Until it stands still, by the failpoint action `stop`."""
        self.wait(lambda: self.is_stopped, "it stops")

    def send(self, number: signal.Signals) -> None:
        """A signal, unless it has ended."""
        if self.status is None:
            os.kill(self.pid, number)

    def leave(self) -> None:
        """SIGTERM, and wait until it has handed its leases back. It must never have met an error but an outage."""
        self.wait_ready()
        self.send(signal.SIGTERM)
        self.require_left()

    def require_left(self) -> None:
        """It was told to leave, and has done so."""
        assert self.wait_ended(within=15) == 0, self.said
        self.require_faultless()

    def require_faultless(self) -> None:
        """Nothing but outages went wrong in it: no error of ours, and none that it put down to a run."""
        assert not FAULT.search(self.said), self.said


class Launcher:
    """The process that forks workers. May be used from several threads."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._own = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.launcher"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def start(
        self,
        database: Database,
        failpoint: str = "",
        *,
        schedules: bool = False,
        url: URL | None = None,
        **environment: str,
    ) -> WorkerProcess:
        """A worker on this database (by another way, if `url` is one), with one failpoint (or several) armed."""
        log = self._folder / f"worker-{next(self._numbers)}.log"
        wanted = {
            "url": plain(url or database.app_url),
            "schedules": schedules,
            "environment": {**ENVIRONMENT, **environment, "TENURE_FAILPOINT": failpoint},
            "log": str(log),
        }
        return WorkerProcess(self._ask({"start": wanted})["pid"], log, self)

    def status(self, pid: int) -> int | None:
        """How a worker ended, None while it lives."""
        status: int | None = self._ask({"ended": pid})["status"]
        return status

    def close(self) -> None:
        """Kill what still lives, and leave."""
        assert self._own.stdin is not None
        assert self._own.stdout is not None
        self._own.stdin.close()
        self._own.wait(timeout=20)
        self._own.stdout.close()

    def _ask(self, question: dict[str, Any]) -> dict[str, Any]:
        assert self._own.stdin is not None
        assert self._own.stdout is not None
        with self._lock:
            self._own.stdin.write(json.dumps(question) + "\n")
            self._own.stdin.flush()
            answer: dict[str, Any] = json.loads(self._own.stdout.readline())
        return answer


@contextmanager
def a_launcher() -> Iterator[Launcher]:
    """A launcher with a folder for what its workers tell."""
    with tempfile.TemporaryDirectory(prefix="tenure-crash-") as folder:
        launcher = Launcher(Path(folder))
        try:
            yield launcher
        finally:
            launcher.close()
