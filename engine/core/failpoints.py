"""Named places at which a test can kill, stop or break the worker. Free of cost unless TENURE_FAILPOINT is set.

    TENURE_FAILPOINT="round.before_commit@assign_role=kill"      the first time a round with such a step gets there
    TENURE_FAILPOINT="dispatch.before_commit=raise#3"            the third time

Actions: `kill` (SIGKILL to this process), `stop` (SIGSTOP), `raise` (a FailpointHit error), `exit` (leaves at once). Several
are joined with `;`. Every edge that the engine crosses between two durable states has one: NAMES lists them.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterable
from dataclasses import dataclass

NAMES: tuple[str, ...] = (
    "claim.after_commit",
    "round.after_load",
    "round.after_decide",
    "round.after_effects",
    "round.before_commit",
    "round.after_commit",
    "call.before_send",
    "call.after_send",
    "answer.before_commit",
    "answer.after_commit",
    "dispatch.after_match",
    "dispatch.before_commit",
    "dispatch.after_commit",
    "schedule.before_commit",
    "schedule.after_commit",
    "mail.after_claim",
    "mail.after_send",
)


class FailpointHit(RuntimeError):
    """What the action `raise` raises."""


@dataclass
class _Armed:
    action: str
    step: str | None
    countdown: int


def _parse(text: str) -> dict[str, list[_Armed]]:
    armed: dict[str, list[_Armed]] = {}
    for part in filter(None, (piece.strip() for piece in text.split(";"))):
        place, _, action = part.partition("=")
        action, _, count = action.partition("#")
        name, _, step = place.partition("@")
        if name not in NAMES or action not in ("kill", "stop", "raise", "exit"):
            raise ValueError(f"TENURE_FAILPOINT: {part} is not <place>[@<step type>]=<kill|stop|raise|exit>[#<count>]")
        armed.setdefault(name, []).append(_Armed(action, step or None, int(count or "1")))
    return armed


_armed = _parse(os.environ.get("TENURE_FAILPOINT", ""))


def hit(name: str, steps: Iterable[str] = ()) -> None:
    """Pass the place `name`, with the step types in hand."""
    if not _armed:
        return
    for point in _armed.get(name, ()):
        if point.step is not None and point.step not in steps:
            continue
        point.countdown -= 1
        if point.countdown == 0:
            _act(point.action, name)


def _act(action: str, name: str) -> None:
    if action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif action == "stop":
        # To this thread: a signal to the process may be taken by another, while this one runs on for a moment.
        signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
    elif action == "exit":
        os._exit(70)
    else:
        raise FailpointHit(name)


def arm(text: str) -> None:
    """Set the failpoints of this process, as TENURE_FAILPOINT would (tests of the engine in their own process)."""
    global _armed
    _armed = _parse(text)
