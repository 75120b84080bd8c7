"""Which operating system user runs the server.

PostgreSQL refuses to run as root. Started by root (a container, mostly), it runs as the user who owns the cluster or
the data folder, or else as `nobody`; started by anyone else, as that one. No user is ever added and no mode of a
parent folder changed."""

from __future__ import annotations

import os
import pwd
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from db.errors import DatabaseUnavailable

UNPRIVILEGED = ("nobody", "postgres", "daemon")
"""Who may run the server for root. It must be in /etc/passwd: initdb looks its own name up there."""


@dataclass(frozen=True)
class Account:
    """A user the server runs as that is not the caller: only root can have one."""

    uid: int
    gid: int


def server_account(data_dir: Path, cluster: Path | None) -> Account | None:
    """Who runs the server, None for the caller. Raises DatabaseUnavailable when only another user could."""
    made = cluster is not None and cluster.exists()
    owned = (cluster if cluster is not None and made else data_dir).stat()
    if os.geteuid() != 0:
        if made and owned.st_uid != os.geteuid():
            raise DatabaseUnavailable(f"{cluster} belongs to user id {owned.st_uid}: run as that user or as root.")
        return None
    if owned.st_uid != 0:
        return Account(owned.st_uid, owned.st_gid)
    for name in UNPRIVILEGED:
        with suppress(KeyError):
            entry = pwd.getpwnam(name)
            return Account(entry.pw_uid, entry.pw_gid)
    raise DatabaseUnavailable("PostgreSQL does not run as root, and /etc/passwd has no user nobody: add one.")


def run_as(
    account: Account | None, command: Sequence[str | Path], *, timeout: float
) -> subprocess.CompletedProcess[str]:
    """Run a program that ends by itself, as `account`, and capture what it says.

    Its environment is ours without PG*, which would redirect PostgreSQL's programs, and in the C locale, because we
    read what they say."""
    return subprocess.run(
        [str(word) for word in command],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=timeout,
        check=False,
        **_identity(account),
    )


def launch_as(account: Account | None, command: Sequence[str | Path], *, timeout: float) -> int:
    """Run a program that leaves a server behind; the exit status. Its output goes nowhere: a pipe would stay open in
    the server and never end (STACK.md, trap 5)."""
    return subprocess.run(
        [str(word) for word in command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=timeout,
        check=False,
        **_identity(account),
    ).returncode


def can_enter(account: Account | None, folder: Path) -> bool:
    """Whether the user gets through all parents of `folder` and into it. Asked of the system itself, which knows
    ACLs."""
    return run_as(account, ["/bin/sh", "-c", 'cd "$1"', "sh", folder], timeout=10).returncode == 0


def give(path: Path, account: Account | None) -> None:
    """Make `path` the account's."""
    if account is not None:
        os.chown(path, account.uid, account.gid)


def _identity(account: Account | None) -> dict[str, Any]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_", "LANG"))}
    identity: dict[str, Any] = {"cwd": "/", "env": environment | {"LC_ALL": "C"}}
    if account is not None:
        identity |= {"user": account.uid, "group": account.gid, "extra_groups": []}
    return identity
