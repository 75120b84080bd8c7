"""Name to addresses. `getaddrinfo` cannot be interrupted, so it runs in a thread that the caller may leave behind."""

from __future__ import annotations

import queue
import socket
import threading
from collections.abc import Callable, Sequence
from typing import TypeAlias

from engine.egress.deadline import Deadline, OutOfTime

Resolve: TypeAlias = Callable[[str], Sequence[str]]
"""A host name to address literals, best first. Raises OSError if the name has none."""

LOOKUPS_AT_ONCE = 512
"""Threads that may sit in a lookup, those left behind included: a name server that hangs must not eat the process."""

_lookups = threading.BoundedSemaphore(LOOKUPS_AT_ONCE)


def system_addresses(host: str) -> list[str]:
    """What the operating system's resolver says, in its order of preference."""
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def addresses_of(host: str, resolve: Resolve, deadline: Deadline) -> list[str]:
    """The addresses of `host`, asked for once. Raises OSError (no such name), OutOfTime."""
    if not _lookups.acquire(timeout=deadline.remaining()):
        raise OutOfTime("too many lookups are waiting")
    answers: queue.SimpleQueue[list[str] | Exception] = queue.SimpleQueue()

    def look_up() -> None:
        try:
            answers.put(list(resolve(host)))
        except Exception as error:  # whatever it is belongs to the caller, not to this thread
            answers.put(error)
        finally:
            _lookups.release()

    try:
        threading.Thread(target=look_up, name=f"lookup {host}", daemon=True).start()
    except RuntimeError as error:
        _lookups.release()
        raise OSError("no thread left for a lookup") from error
    try:
        answer = answers.get(timeout=deadline.remaining())
    except queue.Empty:
        raise OutOfTime("the name was not resolved in time") from None
    if isinstance(answer, UnicodeError):
        raise OSError("the name cannot be looked up") from answer
    if isinstance(answer, Exception):
        raise answer
    if not answer:
        raise OSError("the name has no address")
    return answer
