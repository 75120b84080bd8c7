"""A process worker that drains, and does not give up.

The stock one kills its flow processes at SIGTERM and leaves their runs Running for ever. It also ends after some minutes without
the Prefect server, and takes its flow processes with it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

import anyio.abc
import httpx
from prefect.exceptions import ObjectAlreadyExists
from prefect.workers.process import ProcessJobConfiguration, ProcessWorker, ProcessWorkerResult

from engine.core.faults import message_of

if TYPE_CHECKING:
    from prefect.client.schemas.objects import FlowRun

log = logging.getLogger("prefect.tenure.host")
T = TypeVar("T")

DRAIN_WITHIN = 25.0
"""Seconds that flow processes have to stop. Then they are killed, and their leases run out."""


class DrainingWorker(ProcessWorker):
    """A process worker that can be told to take nothing new, and knows its processes."""

    __dispatch_key__ = "tenure-draining"  # type: ignore[assignment]  # else it would take the stock worker's place
    draining = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.hosted: dict[UUID, int | None] = {}
        """Flow runs whose process is starting (None) or running (its id)."""

    async def get_and_submit_flow_runs(self) -> list[FlowRun]:
        if self.draining:
            return []
        return await _forgiving(super().get_and_submit_flow_runs) or []

    async def sync_with_backend(self) -> None:
        await _forgiving(super().sync_with_backend)

    async def run(
        self,
        flow_run: FlowRun,
        configuration: ProcessJobConfiguration,
        task_status: anyio.abc.TaskStatus[int] | None = None,
    ) -> ProcessWorkerResult:
        self.hosted[flow_run.id] = None
        try:
            return await super().run(flow_run, configuration, _Started(self, flow_run.id, task_status))
        finally:
            del self.hosted[flow_run.id]

    def started(self, flow_run_id: UUID, pid: int) -> None:
        """A process runs. One that started while we drain is told at once."""
        self.hosted[flow_run_id] = pid
        if self.draining:
            _signal(pid, signal.SIGTERM)

    async def drain(self) -> None:
        """Take nothing new, stop every flow process, and return when all have gone, or after DRAIN_WITHIN."""
        self.draining = True
        log.info("Draining: %d flow processes", len(self.hosted))
        self._signal_all(signal.SIGTERM)
        with suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_WITHIN):
                while self.hosted:
                    await asyncio.sleep(0.1)
        if self.hosted:
            log.warning("%d flow processes do not stop: killed", len(self.hosted))
            self._signal_all(signal.SIGKILL)

    def _signal_all(self, number: signal.Signals) -> None:
        for pid in self.hosted.values():
            if pid is not None:
                _signal(pid, number)


class _Started(anyio.abc.TaskStatus[int]):
    """Passes on that a process has started, and lets the worker know it."""

    def __init__(self, worker: DrainingWorker, flow_run_id: UUID, inner: anyio.abc.TaskStatus[int] | None) -> None:
        self._worker = worker
        self._flow_run_id = flow_run_id
        self._inner = inner

    def started(self, value: int | None = None) -> None:
        if value is not None:
            self._worker.started(self._flow_run_id, value)
        if self._inner is not None:
            self._inner.started(value)  # type: ignore[arg-type]


async def _forgiving(call: Callable[[], Awaitable[T]]) -> T | None:
    """What `call` returns; None while the server is away or falters. The loops that call this would else give up."""
    try:
        return await call()
    except (httpx.TransportError, httpx.HTTPStatusError, ObjectAlreadyExists) as error:
        log.warning("The Prefect server is away: %s", message_of(error))
        return None


def _signal(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)
