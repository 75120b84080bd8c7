"""`python -m flows.host`: starts flow runs as processes of their own, and drains them when it is asked to stop.

At SIGTERM it takes nothing new, passes the signal on, waits until the flow processes have handed their leases back and reported,
and then goes (flows/draining.py). Meanwhile it looks after the shifts: one that is missing is started (flows/vigil.py), and
one that only Prefect believes to be running is ended (flows/reconcile.py).
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from prefect.logging.configuration import setup_logging

from engine.core.faults import message_of, place_of
from flows import vigil
from flows.draining import DrainingWorker
from flows.reconcile import Reconciliation
from flows.server import POOL, server_answers

log = logging.getLogger("prefect.tenure.host")

ROOT = Path(__file__).resolve().parent.parent
"""The checkout: where flow processes run."""
PROCESSES = 8
"""Flow processes at once. Shifts overlap for a moment; in an outage of the database more of them pile up, up to here."""
VIGIL_EVERY = 3.0
RECONCILE_EVERY = 20.0
FAREWELL = 3.0
"""Seconds from the end of the drain until the process is gone."""
START_AGAIN_IN = 5.0
ASK_AGAIN_IN = 0.3
"""Seconds between two looks whether the Prefect server is there, before the worker starts."""


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
