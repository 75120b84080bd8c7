"""The processes of a stack: none outlives it, none is left alone when it dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.children import Child
from cli.folder import taken_folder
from cli.parts import StackFailed, answers, free_ports

ROOT = Path(__file__).parents[2]
SLEEPS = "import time; time.sleep(60)"
STUBBORN = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
grandchild = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
print(grandchild.pid, flush=True)
time.sleep(60)
"""
PARENT = f"""
import os, sys, time
from pathlib import Path
from cli.children import Child
child = Child("sleeper", [sys.executable, "-c", {SLEEPS!r}], dict(os.environ), Path(sys.argv[1]), Path("."))
child.start()
print(child.pid, flush=True)
time.sleep(60)
"""


def until(holds: Callable[[], object], within: float = 10) -> None:
    deadline = time.monotonic() + within
    while not holds():
        assert time.monotonic() < deadline, "it did not come to hold in time"
        time.sleep(0.01)


def is_gone(pid: int) -> bool:
    """Whether no such process runs: it is unknown, or a zombie that nobody has waited for."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def child_of(tmp_path: Path, code: str) -> Child:
    return Child("child", [sys.executable, "-c", code], dict(os.environ), tmp_path, tmp_path)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process that its parent is gone")
def test_a_child_does_not_outlive_a_parent_that_was_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PARENT, str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert not is_gone(pid)
        parent.kill()
        until(lambda: is_gone(pid))


def test_a_child_that_does_not_stop_is_killed_with_all_it_has_started(tmp_path: Path) -> None:
    child = child_of(tmp_path, STUBBORN)
    child.start()
    until(lambda: child.log_path.read_text().endswith("\n"))
    grandchild = int(child.log_path.read_text())
    child.ask_to_stop()
    assert not child.stop(within=0.2)
    assert child.status == -signal.SIGKILL
    until(lambda: is_gone(grandchild))


def test_a_child_that_stops_when_asked_is_not_killed(tmp_path: Path) -> None:
    child = child_of(tmp_path, SLEEPS)
    child.start()
    child.ask_to_stop()
    assert child.stop(within=10)
    assert child.status == -signal.SIGTERM


def test_a_child_that_keeps_dying_is_started_again_later_and_later(tmp_path: Path) -> None:
    now = 1000.0
    command = [sys.executable, "-c", "raise SystemExit(3)"]
    child = Child("child", command, dict(os.environ), tmp_path, tmp_path, clock=lambda: now)
    child.start()
    pauses = []
    for _ in range(7):
        assert child.stop(within=10)
        died_at = now
        while not child.restart_if_dead():
            now += 0.5
        pauses.append(now - died_at)
    assert child.stop(within=10)
    assert pauses == [1, 2, 4, 8, 16, 30, 30]


def test_the_end_of_a_childs_log_can_be_quoted(tmp_path: Path) -> None:
    child = child_of(tmp_path, "print('\\n'.join(f'line {n}' for n in range(99)))")
    child.start()
    assert child.stop(within=10)
    assert child.log_end(lines=2) == "line 97\nline 98"


def test_a_port_that_is_taken_is_refused_and_zero_finds_free_ones() -> None:
    first, second = free_ports(0, 0)
    assert first != second
    with subprocess.Popen(
        [sys.executable, "-m", "http.server", "--bind", "127.0.0.1", str(first)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as server:
        until(lambda: answers(f"http://127.0.0.1:{first}/"))
        assert not answers(f"http://127.0.0.1:{first}/missing")
        with pytest.raises(StackFailed, match=f"Port {first} is taken"):
            free_ports(first)
        server.terminate()


def test_one_stack_at_a_time_has_a_folder(tmp_path: Path) -> None:
    with taken_folder(tmp_path), pytest.raises(StackFailed, match="already running"), taken_folder(tmp_path):
        pass
    with taken_folder(tmp_path):
        pass
