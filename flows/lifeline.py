"""A process that must not outlive its parent: Linux signals it when the parent is gone, however that went.

The signal comes when the parent's *thread* that started the child ends: start children from a thread that stays. And it may come
several times, for a child is passed on from one dying thread of its parent to the next.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def die_with_parent(parent: int, signal_number: int = signal.SIGTERM) -> None:
    """Ask for `signal_number` when process `parent`, ours, is gone; at once if it is gone already. Nothing but on Linux.

    Cheap and free of locks: may be called between fork and exec.
    """
    if _libc is None:
        return
    _libc.prctl(_PR_SET_PDEATHSIG, int(signal_number), 0, 0, 0)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal_number)


def is_orphaned(parent: int) -> bool:
    """Whether `parent`, ours when we started, is gone or going: the signal comes with the end of its first thread."""
    if os.getppid() != parent:
        return True
    try:
        state = Path(f"/proc/{parent}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state in ("Z", "X")


def go_quiet() -> None:
    """Write output to nowhere. When nobody reads it any more, the next line of it would end this process (rich does)."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    os.close(nowhere)
