"""The embedded PostgreSQL of a stack: started or joined, started again when it dies, stopped if a stack started it."""

from __future__ import annotations

import subprocess
import sys

from cli.folder import postgres_marker
from cli.parts import ROOT
from db.embedded import ensure_server, stop_server
from db.settings import DatabaseSettings


class StackPostgres:
    """With a database of the operator's it does nothing at all."""

    def __init__(self, settings: DatabaseSettings) -> None:
        self._is_embedded = settings.database_url is None and settings.app_database_url is None
        self._data_dir = settings.data_dir
        self._guard: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, or join one that runs. Raises DatabaseUnavailable."""
        if self._is_embedded:
            if ensure_server(self._data_dir).started:
                postgres_marker(self._data_dir).touch()
            self._guard = self._start_guard()

    def start_if_dead(self) -> bool:
        """True when it had died and runs again. Raises DatabaseUnavailable when it does not start."""
        return self._is_embedded and ensure_server(self._data_dir).started

    @property
    def is_ours(self) -> bool:
        """Whether it is ours to stop: a stack has started it, and that stack is this one now."""
        return self._guard is not None and postgres_marker(self._data_dir).exists()

    def stop(self) -> None:
        """Stop it if it is ours, and the guard in any case."""
        if self.is_ours:
            stop_server(self._data_dir)
            postgres_marker(self._data_dir).unlink()
        if self._guard is not None:
            self._guard.kill()
            self._guard.communicate()
            self._guard = None

    def _start_guard(self) -> subprocess.Popen[bytes]:
        """Who stops it if we are killed (cli/guard.py). It lives as long as the pipe, which nobody else has."""
        return subprocess.Popen(
            [sys.executable, "-m", "cli.guard", str(self._data_dir)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
