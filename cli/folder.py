"""A stack's data folder: one stack at a time, and whether its PostgreSQL is the stack's to stop."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cli.parts import StackFailed

LOCK = "stack.lock"
"""The file that is locked. Whoever empties the folder leaves it, or two could each hold a lock of that name."""


@contextmanager
def taken_folder(data_dir: Path) -> Iterator[None]:
    """Meanwhile, no other stack can take the folder: two would stop each other's server. Raises StackFailed if one has."""
    data_dir.mkdir(parents=True, exist_ok=True)
    with (data_dir / LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StackFailed(f"Tenure is already running on {data_dir}.") from None
        yield


def postgres_marker(data_dir: Path) -> Path:
    """A file that says the embedded PostgreSQL was started by a stack: to be stopped by it, or, if it was killed, by the next."""
    return data_dir / "stack.postgres"
