"""A shift inside a flow run. The loop has its own thread; the main thread reports, watches for the end, and may be slow.

How it ends, and as what:
    its time is up and a younger shift is at work, or the cap of hours     Completed
    SIGTERM (the host drains, the machine goes down)                       Completed, "stopped"
    an operator's cancel, by the host's signal or seen in the run's state  Cancelled
Leases are handed back in every case, at the boundary of a pass, before anything is reported.

After an outage of the Prefect server an automation may declare a shift crashed that is well: its heartbeats were lost. It is
replaced for that, and goes on until the other is at work.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from contextvars import copy_context
from typing import Any
from uuid import UUID

from prefect import Flow, runtime
from prefect.client.schemas.objects import FlowRun, State, StateType
from prefect.exceptions import TerminationSignal
from prefect.states import Cancelled, Completed

from engine.core.faults import message_of
from engine.core.shifts import End
from flows.lifeline import die_with_parent, go_quiet, is_orphaned
from flows.server import client
from flows.shift import ShiftLoop, Terms
from tasks import attendance
from tasks.attendance import Attendance
from tasks.display import Display
from tasks.passes import Passes

log = logging.getLogger("engine.shift")

LOOK_EVERY = 10.0
"""Seconds between two looks at the run's own state: the channel that cancels a run dies with the server."""
CANCELLED = (StateType.CANCELLING, StateType.CANCELLED)
STOP_WITHIN = 20.0
"""Seconds a pass may take to its boundary once stopped. The host kills after 25."""


def slot_name() -> str:
    """The name of a flow run: its slot."""
    slot = runtime.flow_run.scheduled_start_time
    return f"shift {slot:%m-%d %H:%M}" if slot is not None else "shift"


def host_shift(deployment: str, open_passes: Callable[[], Passes], terms: Terms, interval: float) -> State[Any]:
    """Host one shift of `deployment`; `interval` is how rarely its passes come, in seconds. Returns the run's final state."""
    logging.getLogger("engine").setLevel(logging.INFO)  # Prefect adds its handlers to this logger, but sets no level
    parent = os.getppid()
    if "PREFECT__FLOW_RUN_ID" in os.environ:  # a process of its own, started by a host
        die_with_parent(parent)
    flow_run_id = runtime.flow_run.id
    loop = ShiftLoop(open_passes, Attendance(deployment, flow_run_id, interval), terms)
    display = Display(deployment)
    threading.Thread(target=copy_context().run, args=(loop.run,), name="shift", daemon=True).start()
    try:
        _watch(loop, display, flow_run_id)
    except TerminationSignal:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one changes nothing: the leases are on their way back
        loop.stop("stopped")
        if is_orphaned(parent):
            go_quiet()
        loop.ended.wait(STOP_WITHIN)
        if _own_state(flow_run_id) in CANCELLED:
            raise
    _report(loop, display)
    message = f"{loop.how}: {loop.tally}"
    return Cancelled(message=message) if loop.how == "cancelled" else Completed(message=message)


def bury_crashed(flow: Flow[..., Any], flow_run: FlowRun, state: State[Any]) -> None:
    """Hook, run by the host once the process is gone: hand the leases of a crashed shift back."""
    _bury(flow_run, "crashed")


def bury_cancelled(flow: Flow[..., Any], flow_run: FlowRun, state: State[Any]) -> None:
    """Hook, run by the host: the same for a shift that was cancelled and did not end by itself."""
    _bury(flow_run, "cancelled")


def _bury(flow_run: FlowRun, how: End) -> None:
    """Prefect would ship an error of a hook to its server with all of its text. The leases end by themselves in any case."""
    try:
        attendance.bury(str(flow_run.id), how)
    except Exception as error:
        log.warning("The leases of a shift that %s are left to end by themselves: %s", how, message_of(error))


def _watch(loop: ShiftLoop, display: Display, flow_run_id: str | None) -> None:
    """Until the loop has ended: show what it does, and look whether somebody wants it to stop."""
    look_at = time.monotonic() + LOOK_EVERY
    while not loop.ended.wait(0.5):
        _show(loop, display)
        if time.monotonic() >= look_at:
            match _own_state(flow_run_id):
                case StateType.CANCELLING | StateType.CANCELLED:
                    loop.stop("cancelled")
                case StateType.CRASHED | StateType.FAILED:
                    loop.expire()
            look_at = time.monotonic() + LOOK_EVERY


def _own_state(flow_run_id: str | None) -> StateType | None:
    """What Prefect believes of this run. None when the server does not answer."""
    if flow_run_id is None:
        return None
    try:
        with client() as prefect:
            return prefect.read_flow_run(UUID(flow_run_id)).state_type
    except Exception as error:
        log.warning("The shift's own state is unknown: %s", message_of(error))
        return None


def _show(loop: ShiftLoop, display: Display) -> None:
    """Report what there is. A server that does not take it costs the shift nothing but the report."""
    try:
        display.show(loop.tally.take())
    except Exception as error:
        log.warning("A report was lost: %s", message_of(error))


def _report(loop: ShiftLoop, display: Display) -> None:
    """The last passes, and the shift's table."""
    _show(loop, display)
    rows = loop.tally.rows()
    if display.unshown_events:
        rows["events not emitted"] = display.unshown_events
    try:
        display.table(rows, description=f"How it ended: {loop.how}")
    except Exception as error:
        log.warning("The shift's table was lost: %s", message_of(error))
