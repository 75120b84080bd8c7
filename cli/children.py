"""A process of the stack: started with a log file of its own, watched, stopped; it does not outlive us."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from flows.lifeline import die_with_parent

LOG_KEPT = 10 * 1024 * 1024
"""Bytes of a log above which it is put aside (as <name>.log.1) at the next start."""
RESTARTED_AFTER = 1.0
RESTARTED_AT_LEAST_AFTER = 30.0
"""Seconds until a dead child is started again: doubling from the first to the last."""
STEADY = 60.0
"""Seconds a child must have lived for its next death to count as the first again."""


class Child:
    """One process, in a session of its own: a Ctrl-C of the terminal reaches us alone, and we stop it in good order.

    Start it from a thread that stays: it is signalled when that thread ends, as it is when we are killed (flows/lifeline.py).
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        environment: Mapping[str, str],
        logs: Path,
        cwd: Path,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self.log_path = logs / f"{name}.log"
        self._command = list(command)
        self._environment = dict(environment)
        self._cwd = cwd
        self._clock = clock
        self._process: subprocess.Popen[bytes] | None = None
        self._started_at = 0.0
        self._deaths = 0
        self._restart_at: float | None = None

    def start(self) -> None:
        """Start it. Returns before it is of any use."""
        if self.log_path.exists() and self.log_path.stat().st_size > LOG_KEPT:
            self.log_path.replace(self.log_path.with_suffix(".log.1"))
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                env=self._environment,
                cwd=self._cwd,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=partial(_prepare, os.getpid()),
            )
        self._started_at = self._clock()
        self._restart_at = None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    @property
    def status(self) -> int | None:
        """Its exit status. None while it runs, or before it was started."""
        return self._process.poll() if self._process is not None else None

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def restart_if_dead(self) -> bool:
        """Start it again after a pause that grows with every death. True when this call started it."""
        if self._process is None or self.is_running:
            return False
        now = self._clock()
        if self._restart_at is None:
            self._deaths = 1 if now - self._started_at > STEADY else self._deaths + 1
            self._restart_at = now + min(RESTARTED_AT_LEAST_AFTER, RESTARTED_AFTER * 2 ** min(self._deaths - 1, 10))
        if now < self._restart_at:
            return False
        self.start()
        return True

    def ask_to_stop(self) -> None:
        """SIGTERM, to it alone: it stops its own children in good order."""
        if self._process is not None and self.is_running:
            self._process.terminate()

    def stop(self, within: float) -> bool:
        """Wait for it, having asked, and kill what is left of it after `within` seconds. Whether it went by itself."""
        if self._process is None:
            return True
        try:
            self._process.wait(max(0.0, within))
            return True
        except subprocess.TimeoutExpired:
            self.kill()
            self._process.wait()
            return False

    def kill(self) -> None:
        """SIGKILL, to it and all it has started."""
        if self._process is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def log_end(self, lines: int = 15) -> str:
        """The end of its log."""
        with suppress(FileNotFoundError), self.log_path.open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - 8192))
            return "\n".join(log.read().decode(errors="replace").splitlines()[-lines:])
        return ""


def _prepare(parent: int) -> None:
    """In the child, before it becomes another program."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # ignored for ever in what a script started with `&`
    die_with_parent(parent)
