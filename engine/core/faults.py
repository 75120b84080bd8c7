"""Telling a database that is away from a statement that is wrong."""

from __future__ import annotations

import re
import traceback

from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError, TimeoutError

_CONTENTION = frozenset({"40001", "40P01", "55P03"})
"""serialization_failure, deadlock_detected, lock_not_available."""

_SHORTAGES = ("08", "531", "533", "57P", "58", "25006")
"""Beginnings of SQLSTATEs that tell of the server and not of the statement: connections, a full disk, too many connections, a
shutdown, a system error, a server that is read-only for a while. A statement that was too slow or took too much memory is not
among them: that is told of whoever ran it."""


def sqlstate(error: DBAPIError) -> str | None:
    """The SQLSTATE of an error, if the server gave one."""
    state = getattr(error.orig, "sqlstate", None)
    return state if isinstance(state, str) else None


def is_contention(error: BaseException) -> bool:
    """Whether the transaction lost to another one, and may simply be done again."""
    return isinstance(error, DBAPIError) and sqlstate(error) in _CONTENTION


def is_outage(error: BaseException) -> bool:
    """Whether the database was away or short of something: nobody's run is to blame, and all of it is tried again."""
    if isinstance(error, TimeoutError):
        return True
    if not isinstance(error, DBAPIError):
        return False
    state = sqlstate(error)
    if error.connection_invalidated or state is None:
        return error.connection_invalidated or isinstance(error, OperationalError | InterfaceError)
    return state.startswith(_SHORTAGES)


def message_of(error: BaseException) -> str:
    """What may be kept of an unexpected error: its kind, and the SQLSTATE; never a value that it quotes."""
    if isinstance(error, DBAPIError):
        return f"{type(error.orig).__name__} {sqlstate(error) or ''}".strip()
    return re.sub(r"[^A-Za-z0-9_ ]", "", type(error).__name__)


def place_of(error: BaseException) -> str:
    """Where in our code an unexpected error came from, innermost last. A traceback would end in the error's text, which quotes
    rows, and logs are read by every operator (lifecycle.md, decision 9)."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "site-packages" not in frame.filename]
    return " > ".join(f"{'/'.join(frame.filename.split('/')[-2:])}:{frame.lineno}" for frame in frames[-5:])
