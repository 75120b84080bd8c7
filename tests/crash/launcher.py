"""Forks worker processes from a parent that has imported everything: 10 ms each instead of some seconds.

The parent has one thread and never opened a connection, so nothing is shared but code. It takes a line of JSON on standard
input and answers with one:

    {"start": {"url": ..., "schedules": ..., "environment": {...}, "log": ...}}    {"pid": 123}
    {"ended": 123}                                                                 {"status": null | exit status | -signal}

At the end of its input it kills what still lives of its children, and leaves.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import traceback
from typing import Any

from tests.crash import worker_process

Json = dict[str, Any]


def main() -> None:
    gc.collect()
    gc.freeze()  # so that the children's collections do not copy every page of the parent
    ended: dict[int, int | None] = {}
    for line in sys.stdin:
        asked = json.loads(line)
        if "start" in asked:
            pid = start(asked["start"])
            ended[pid] = None
            answer: Json = {"pid": pid}
        else:
            answer = {"status": reap(ended, asked["ended"])}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
    for pid, status in ended.items():
        if status is None:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def start(wanted: Json) -> int:
    """A worker in a child of its own, its output in a file."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        log = os.open(wanted["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((nothing, 0), (log, 1), (log, 2)):
            os.dup2(source, target)
        os.environ.update(wanted["environment"])
        worker_process.work(wanted["url"], schedules=wanted["schedules"])
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def reap(ended: dict[int, int | None], pid: int) -> int | None:
    """How a child ended: its exit status, or the number of the signal that killed it, negative. None while it lives."""
    if ended[pid] is None:
        gone, status = os.waitpid(pid, os.WNOHANG)
        if gone:
            ended[pid] = os.waitstatus_to_exitcode(status)
    return ended[pid]


if __name__ == "__main__":
    main()
