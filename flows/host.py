"""`python -m flows.host`: starts flow runs as processes of their own, and drains them when it is asked to stop.

The stock process worker kills its flow processes at SIGTERM and leaves their runs Running for ever. This one takes nothing
new, passes SIGTERM on, waits until they have handed their leases back and reported, and then goes. It also never gives up
during an outage of the Prefect server (the stock worker does after some minutes, and takes its flow processes with it).
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

import anyio.abc
import httpx
from prefect.exceptions import ObjectAlreadyExists
from prefect.logging.configuration import setup_logging
from prefect.workers.process import ProcessJobConfiguration, ProcessWorker, ProcessWorkerResult

from engine.core.faults import message_of, place_of
from flows import vigil
from flows.reconcile import Reconciliation
from flows.server import POOL, server_answers

if TYPE_CHECKING:
    from prefect.client.schemas.objects import FlowRun

log = logging.getLogger("prefect.tenure.host")
T = TypeVar("T")

ROOT = Path(__file__).resolve().parent.parent
"""The checkout: where flow processes run."""
PROCESSES = 8
"""Flow processes at once. Shifts overlap for a moment; in an outage of the database more of them pile up, up to here."""
DRAIN_WITHIN = 25.0
"""Seconds that flow processes have to stop. Then they are killed, and their leases run out."""
VIGIL_EVERY = 3.0
RECONCILE_EVERY = 20.0
FAREWELL = 3.0
"""Seconds from the end of the drain until the process is gone."""
START_AGAIN_IN = 5.0
ASK_AGAIN_IN = 0.3
"""Seconds between two looks whether the Prefect server is there, before the worker starts."""


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


async def host(stop: asyncio.Event) -> None:
    """Host flow runs until `stop`, then drain. A worker that ends by an error is started again."""
    while not stop.is_set():
        if not await asyncio.to_thread(server_answers):
            await _pause(stop, ASK_AGAIN_IN)
            continue
        worker = DrainingWorker(work_pool_name=POOL, limit=PROCESSES, create_pool_if_not_found=True)
        working = asyncio.create_task(worker.start(printer=log.info), name="worker")
        stopped = asyncio.create_task(stop.wait())
        async with _looking_after():
            await asyncio.wait({working, stopped}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if not working.done():
            await worker.drain()
            _leave_within(FAREWELL)
            working.cancel()
        with suppress(asyncio.CancelledError):
            try:
                await working
            except Exception as error:
                log.error("The worker ended: %s at %s", message_of(error), place_of(error))
        await _pause(stop, START_AGAIN_IN)


def _leave_within(seconds: float) -> None:
    """Everything of ours is done. Prefect's own farewells (events, logs, threads) may wait for a server that is gone."""
    farewell = threading.Timer(seconds, os._exit, [0])
    farewell.daemon = True
    farewell.start()


async def _pause(stop: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(stop.wait(), seconds)


@asynccontextmanager
async def _looking_after() -> AsyncIterator[None]:
    """Meanwhile, run what is not at work, and give an end to runs that only Prefect believes to be running."""
    rounds = [_again_and_again(vigil.look, VIGIL_EVERY), _again_and_again(Reconciliation().look, RECONCILE_EVERY)]
    tasks = [asyncio.create_task(a_round) for a_round in rounds]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()


async def _again_and_again(look: Callable[[], object], every: float) -> None:
    while True:
        try:
            await asyncio.to_thread(look)
        except Exception as error:
            log.warning("No look at the shifts: %s", message_of(error))
        await asyncio.sleep(every)


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


async def _main() -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await host(stop)


def main() -> None:
    """Run until SIGTERM or SIGINT. A second one changes nothing; SIGKILL is what is left."""
    setup_logging()
    os.chdir(ROOT)
    os.environ["PATH"] = (
        f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"  # `python` is this one
    )
    asyncio.run(_main())


if __name__ == "__main__":
    main()
