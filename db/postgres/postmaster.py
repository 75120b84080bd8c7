"""One server process: is it alive, is it ours; start it, stop it, quote its log.

The pid file proves nothing: after a power cut or kill -9 it stays, and its number may belong to anything by now. A
process is ours if it is called postgres and was started over, or works in, this very cluster. Only that one is ever
signalled, and only when there is none is the pid file removed. Should we be wrong, PostgreSQL's own interlock (a
shared memory segment named after the cluster's inode) still refuses a second server."""

from __future__ import annotations

import os
import shlex
import subprocess
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

from db.postgres.account import Account, launch_as

LOG_LIMIT = 16 * 1024 * 1024
"""Bytes after which the next start begins a new log and keeps this one as server.log.1. Only warnings and worse go
there."""


def live_postmaster(cluster: Path) -> int | None:
    """The pid of the server that runs over this cluster, from its pid file, or None when the file is absent or
    stale."""
    try:
        pid = int((cluster / "postmaster.pid").read_text().split("\n", 1)[0])
    except (FileNotFoundError, ValueError):
        return None
    return pid if pid > 1 and _works_on(pid, cluster) else None


def forget_dead_postmaster(cluster: Path, socket_dir: Path) -> None:
    """Remove a stale pid file, and the socket's lock, which holds the same pid. PostgreSQL itself would refuse to
    start while any process of its own user has that number: another program by now, or the dead server, as long as
    nobody reaps it (a container without an init). Call it under the folder's lock, after live_postmaster said
    None."""
    (cluster / "postmaster.pid").unlink(missing_ok=True)
    for path in socket_dir.glob(".s.PGSQL.*"):
        path.unlink(missing_ok=True)


def launch(root: Path, programs: Path, account: Account | None, *, timeout: float) -> None:
    """pg_ctl start, in a session of its own, so that neither Ctrl-C nor the death of the caller reaches it. Returns
    once it is up, has died or the time is over: ask the server, or read_log, which."""
    log = root / "log" / "server.log"
    if log.exists() and log.stat().st_size > LOG_LIMIT:
        log.rename(log.with_name("server.log.1"))
    files = {"config_file": root / "server.conf", "hba_file": root / "access.conf"}
    options = " ".join(f"-c {name}={shlex.quote(str(path))}" for name, path in files.items())
    command: list[str | Path] = [
        programs / "pg_ctl",
        "start",
        "-w",
        "-t",
        str(max(1, int(timeout))),
        "-l",
        log,
        "-o",
        options,
    ]
    with suppress(subprocess.TimeoutExpired):
        launch_as(account, [*command, "-D", root / "cluster"], timeout=timeout + 10)


def halt(root: Path, programs: Path, account: Account | None, *, timeout: int) -> bool:
    """Stop the server: at once for its clients (fast), and without waiting for anyone (immediate) if that takes too
    long."""
    command: list[str | Path] = [programs / "pg_ctl", "stop", "-w", "-D", root / "cluster"]
    if launch_as(account, [*command, "-m", "fast", "-t", str(timeout)], timeout=timeout + 10) == 0:
        return True
    return launch_as(account, [*command, "-m", "immediate", "-t", "10"], timeout=20) == 0


def log_size(root: Path) -> int:
    """Where the log ends now, for read_log."""
    log = root / "log" / "server.log"
    return log.stat().st_size if log.exists() else 0


def read_log(root: Path, since: int = 0) -> str:
    """The last 3,000 characters of the log, of what was written after `since`."""
    log = root / "log" / "server.log"
    if not log.exists():
        return ""
    with log.open("rb") as file:
        file.seek(max(since if since <= log.stat().st_size else 0, log.stat().st_size - 3000))
        return file.read().decode(errors="replace")


def _works_on(pid: int, cluster: Path) -> bool:
    name, arguments, folder = _look_at(pid)
    if name != "postgres":
        return False
    if folder is not None and _same(folder, cluster):
        return True
    return any(flag == "-D" and _same(Path(value), cluster) for flag, value in pairwise(arguments))


def _look_at(pid: int) -> tuple[str, list[str], Path | None]:
    """Name, arguments and working folder of a process. /proc where there is one; the folder is not always readable
    there."""
    proc = Path("/proc") / str(pid)
    if Path("/proc/self/comm").exists():
        try:
            name = (proc / "comm").read_text().strip()
            arguments = (proc / "cmdline").read_bytes().decode(errors="surrogateescape").split("\0")
        except OSError:
            return "", [], None
        try:
            return name, arguments, (proc / "cwd").readlink()
        except OSError:
            return name, arguments, None
    listed = subprocess.run(
        ["ps", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, check=False
    ).stdout.strip()
    program, _, rest = listed.partition(" -D ")
    return os.path.basename(program), ["-D", rest.rsplit(" -c config_file=", 1)[0].strip('"')] if rest else [], None


def _same(folder: Path, cluster: Path) -> bool:
    try:
        return folder.samefile(cluster)
    except OSError:
        return False
