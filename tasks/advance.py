"""Passes of the engine's worker: runs claimed and advanced, the outbox dispatched, mail delivered, leftovers swept."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Protocol

from engine.core.settings import EngineSettings
from engine.egress.secrets import Keyring
from engine.lifecycle.worker import Worker
from tasks.database import data_dir, database
from tasks.passes import Occurrence, PassRecord

COUNTS = ("claimed", "moved", "dispatched", "started", "called", "delivered", "swept")


class EndedRun(Protocol):
    """A run that reached its end in a pass."""

    @property
    def realm_id(self) -> str: ...
    @property
    def run_id(self) -> str: ...
    @property
    def workflow_id(self) -> str: ...
    @property
    def state(self) -> str: ...


class PassReport(Protocol):
    """What the worker tells of a pass. COUNTS are members of it as well."""

    @property
    def ended(self) -> tuple[EndedRun, ...]: ...
    @property
    def failed_attempts(self) -> Mapping[str, int]: ...
    @property
    def errors(self) -> int: ...
    @property
    def idle(self) -> bool: ...


class EngineWorker(Protocol):
    """What is used of engine.lifecycle.worker.Worker."""

    @property
    def owner(self) -> str: ...
    def run_pass(self) -> PassReport: ...
    def wait(self, stop: threading.Event) -> None: ...
    def wake(self) -> None: ...
    def close(self) -> int: ...


def open_passes() -> AdvancePasses:
    """Open a worker of this process. Raises when the database is away."""
    return AdvancePasses(Worker.open(database(), EngineSettings(), Keyring.load(data_dir())))


class AdvancePasses:
    """The worker's passes."""

    def __init__(self, worker: EngineWorker) -> None:
        self._worker = worker

    @property
    def owner(self) -> str:
        return self._worker.owner

    def once(self, beat: Callable[[], None]) -> PassRecord:
        return record(self._worker.run_pass())

    def wait(self, stop: threading.Event) -> None:
        self._worker.wait(stop)

    def wake(self) -> None:
        self._worker.wake()

    def close(self) -> int:
        return self._worker.close()


def record(report: PassReport) -> PassRecord:
    """A worker's report in the operators' words."""
    return PassRecord(
        idle=report.idle,
        counts={name: getattr(report, name) for name in COUNTS},
        failed_attempts=report.failed_attempts,
        errors=report.errors,
        occurrences=tuple(_ended(run) for run in report.ended),
    )


def _ended(run: EndedRun) -> Occurrence:
    return Occurrence(
        event=f"engine.run.{run.state}",
        resource=f"engine.run.{run.run_id}",
        related=(("workflow", f"engine.workflow.{run.workflow_id}"), ("realm", f"engine.realm.{run.realm_id}")),
    )
