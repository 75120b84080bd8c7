"""The process's database: opened by the first who needs it, shared by all threads, open until the process ends."""

from __future__ import annotations

import threading
from pathlib import Path

from db.session import Database
from db.settings import DatabaseSettings
from engine.core.settings import WorkerSettings, short_transactions

_lock = threading.Lock()
_opened: Database | None = None


def database() -> Database:
    """The database. Raises when it is away; the next call tries again."""
    global _opened
    with _lock:
        if _opened is None:
            _opened = Database.open(short_transactions(DatabaseSettings(), WorkerSettings()))
        return _opened


def data_dir() -> Path:
    """The folder of everything we keep on disk."""
    return DatabaseSettings().data_dir
