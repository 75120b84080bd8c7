"""The whole of Tenure as processes of one machine: started side by side, watched, stopped in good order.

    PostgreSQL (db/embedded.py) -> tables -> API
    Prefect server -> pool, deployments, automations (flows/deploy.py)
    host (flows/host.py), which runs each shift at once and starts the flow processes

What does not depend on each other starts at once, for the Prefect server takes longest. The host is drained before the server
stops, or its flow runs could not report their end.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from cli.children import Child
from cli.folder import taken_folder
from cli.parts import (
    PARTS,
    ROOT,
    Addresses,
    StackFailed,
    addresses,
    answers,
    commands,
    free_ports,
    prefect_environment,
    require_settings,
)
from cli.postgres import StackPostgres
from db import migrate
from db.session import Database
from db.settings import DatabaseSettings
from engine.core import shifts

__all__ = ["ROOT", "Addresses", "Change", "Stack", "StackFailed", "StackSettings", "Tell"]

START_WITHIN = 240.0
LOOK_EVERY = 0.2
HOST_STOPS_WITHIN = 28.0
REST_STOPS_WITHIN = 3.0
"""Seconds until what does not stop is killed."""
DATABASE_LOOK_EVERY = 2.0

Change = Literal["starting", "ready", "restarted", "stopping", "stopped"]
Tell = Callable[[str, Change, float], None]
"""Told as (part, change, seconds it took)."""


@dataclass(frozen=True)
class StackSettings:
    """What a stack is started with. A port of 0 is any that is free."""

    data_dir: Path
    api_port: int = 8000
    prefect_port: int = 4200
    environment: Mapping[str, str] = field(default_factory=dict)
    """For every process, on top of our own environment."""


class Stack:
    """`with Stack(settings) as stack:` starts everything, watches it, and stops it at the end.

    `addresses` says where it is, `database` is open to whoever runs it. Start it from a thread that stays.
    """

    addresses: Addresses
    database: Database

    def __init__(self, settings: StackSettings, tell: Tell = lambda part, change, seconds: None) -> None:
        self._settings = settings
        self._tell = tell
        self._data_dir = settings.data_dir.expanduser().resolve()
        self._logs = self._data_dir / "logs"
        self._database_settings = DatabaseSettings(data_dir=self._data_dir)
        self._postgres = StackPostgres(self._database_settings)
        self._children: dict[str, Child] = {}
        self._stopping = threading.Event()
        self._nothing_starts = threading.Event()
        self._all_stopped = threading.Event()
        self._watcher: threading.Thread | None = None
        self._folder = ExitStack()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start all parts, and return when the API answers and the first shift has made a pass.

        Raises StackFailed, after which `stop` must be called all the same.
        """
        self._folder.enter_context(taken_folder(self._data_dir))
        self._logs.mkdir(exist_ok=True)
        ports = free_ports(self._settings.api_port, self._settings.prefect_port)
        self.addresses = addresses(self._data_dir, self._logs, *ports)
        require_settings(self._settings.environment)
        environment = {
            # None of the caller's Prefect: another server's address, key or database would take our history elsewhere.
            **{name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")},
            **prefect_environment(self._data_dir, self.addresses.prefect_api, ports[1]),
            **self._settings.environment,
            "TENURE_DATA_DIR": str(self._data_dir),
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
        }
        self._children = {
            name: Child(name, [sys.executable, "-m", *arguments], environment, self._logs, ROOT)
            for name, arguments in commands(*ports).items()
        }
        begun_at = time.monotonic()
        self._start_child("prefect")
        self._start_child("deploy")
        self._start_database()
        self._start_child("api")
        self._start_child("host")
        self._await_parts(begun_at)
        self._watcher = threading.Thread(target=self._watch, name="stack", daemon=True)
        self._watcher.start()

    def stop(self) -> None:
        """Stop what runs: first the host, which drains its flow runs, and the API; then the Prefect server; then PostgreSQL."""
        self._stopping.set()
        if self._watcher is not None:
            self._nothing_starts.wait()
        self._stop_children(["deploy", "api", "host"], HOST_STOPS_WITHIN)
        self._stop_children(["prefect"], REST_STOPS_WITHIN)
        self._all_stopped.set()
        if self._watcher is not None:
            self._watcher.join()
        if hasattr(self, "database"):
            self.database.close()
        if self._postgres.is_ours:
            with self._telling("PostgreSQL", "stopping", "stopped"):
                self._postgres.stop()
        self._postgres.stop()
        self._folder.close()

    def kill(self) -> None:
        """End every process at once. May be called from a signal's function, while `stop` is waiting."""
        for child in self._children.values():
            child.kill()

    def child(self, name: Literal["prefect", "deploy", "api", "host"]) -> Child:
        """A part's process, for those who test what happens when it dies."""
        return self._children[name]

    def _start_child(self, name: str) -> None:
        self._tell(PARTS[name], "starting", 0.0)
        self._children[name].start()

    def _start_database(self) -> None:
        with self._telling("PostgreSQL", "starting", "ready"):
            self._postgres.start()
            self.database = Database.open(self._database_settings, application_name="tenure stack")
        with self._telling("tables", "starting", "ready"):
            migrate.upgrade(self.database)

    def _await_parts(self, begun_at: float) -> None:
        waiting: dict[str, Callable[[], bool]] = {
            "prefect": lambda: answers(f"{self.addresses.prefect_api}/health"),
            "api": lambda: answers(f"{self.addresses.api}/health/ready"),
            "deploy": lambda: self._children["deploy"].status == 0,
            "host": lambda: shifts.at_work(self.database, "advance-runs"),
        }
        while waiting:
            for name in list(waiting):
                if waiting[name]():
                    self._tell(PARTS[name], "ready", time.monotonic() - begun_at)
                    del waiting[name]
                elif (status := self._children[name].status) is not None and not (name == "deploy" and status == 0):
                    end = self._children[name].log_end()
                    raise StackFailed(f"{PARTS[name]} ended with status {status}. The end of its log:\n{end}")
            if waiting and time.monotonic() - begun_at > START_WITHIN:
                missing = ", ".join(PARTS[name] for name in waiting)
                raise StackFailed(f"Not ready within {START_WITHIN:.0f} s: {missing}. See {self._logs}.")
            time.sleep(LOOK_EVERY)

    def _watch(self) -> None:
        """Start again what died, until the stack stops. The thread stays until all have stopped: what it started is
        signalled when it ends."""
        look_at = 0.0
        while not self._stopping.wait(LOOK_EVERY):
            try:
                for name in ("prefect", "api", "host"):
                    if self._children[name].restart_if_dead():
                        self._tell(PARTS[name], "restarted", 0.0)
                if time.monotonic() >= look_at:
                    look_at = time.monotonic() + DATABASE_LOOK_EVERY
                    if self._postgres.start_if_dead():
                        self._tell("PostgreSQL", "restarted", 0.0)
            except Exception as error:  # a part that cannot be started now is tried again at the next look
                with (self._logs / "stack.log").open("a") as log:
                    log.write(f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} {error}\n")
        self._nothing_starts.set()
        self._all_stopped.wait()

    def _stop_children(self, names: list[str], within: float) -> None:
        running = [self._children[name] for name in names if name in self._children and self._children[name].is_running]
        deadline = time.monotonic() + within
        began_at = time.monotonic()
        for child in running:
            self._tell(PARTS[child.name], "stopping", 0.0)
            child.ask_to_stop()
        for child in running:
            child.stop(deadline - time.monotonic())
            self._tell(PARTS[child.name], "stopped", time.monotonic() - began_at)

    @contextmanager
    def _telling(self, part: str, before: Change, after: Change) -> Iterator[None]:
        began_at = time.monotonic()
        self._tell(part, before, 0.0)
        yield
        self._tell(part, after, time.monotonic() - began_at)
