"""`tenure up`: the whole stack until Ctrl-C."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from rich.console import Console
from rich.status import Status

from cli.stack import Change, Stack, StackFailed, StackSettings
from db.errors import DatabaseUnavailable

WORDS: dict[Change, str] = {"ready": "ready", "restarted": "had died: started again", "stopped": "stopped"}


def run_up(settings: StackSettings, console: Console) -> int:
    """Start the stack, say where it is, and keep it until SIGINT or SIGTERM. A second one kills. Returns the exit status."""
    console.print(f"Starting Tenure in [bold]{settings.data_dir}[/bold]")
    progress = Progress(console)
    stack = Stack(settings, progress.tell)
    try:
        with stop_signals(stack), progress, stack:
            progress.pause()
            print_addresses(stack, console)
            threading.Event().wait()
    except KeyboardInterrupt:
        return 0
    except (StackFailed, DatabaseUnavailable) as error:
        console.print(str(error), style="red", markup=False, soft_wrap=True, highlight=False)
        return 1
    return 0


class Progress:
    """A line for each part when it is ready, with the seconds it took; meanwhile, what is still awaited."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._status: Status | None = None
        self._awaited: list[str] = []
        self._began_at = time.monotonic()

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *error: object) -> None:
        self.pause()

    def tell(self, part: str, change: Change, seconds: float) -> None:
        """As cli.stack.Tell."""
        if change in ("starting", "stopping"):
            self._awaited.append(part)
        else:
            self._awaited = [awaited for awaited in self._awaited if awaited != part]
            took = f"{seconds:5.1f} s" if change != "restarted" else ""
            self._console.print(f"  {part:<15} {WORDS[change]:<9} {took}", highlight=False)
        self._show()

    def pause(self) -> None:
        """Show nothing moving until the next change."""
        if self._status is not None:
            self._status.stop()
            self._status = None

    def _show(self) -> None:
        if not self._awaited:
            self.pause()
        elif self._console.is_terminal:
            text = f"waiting for {', '.join(self._awaited)}"
            if self._status is None:
                self._status = self._console.status(text)
                self._status.start()
            self._status.update(text)


def print_addresses(stack: Stack, console: Console) -> None:
    """A few lines: where everything is."""
    where = stack.addresses
    for name, value in (
        ("API", where.api),
        ("its documentation", where.api_docs),
        ("Prefect's pages", where.prefect_ui),
        ("data", where.data_dir),
        ("logs", where.logs),
    ):
        console.print(f"  {name:<18} [bold]{value}[/bold]", highlight=False)
    console.print("Ctrl-C stops everything.")


@contextmanager
def stop_signals(stack: Stack) -> Iterator[None]:
    """Meanwhile, the first SIGINT or SIGTERM raises KeyboardInterrupt, which leaves the stack; every further one kills it."""
    seen = False

    def on_signal(number: int, frame: FrameType | None) -> None:
        nonlocal seen
        if seen:
            stack.kill()
            return
        seen = True
        raise KeyboardInterrupt

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)
