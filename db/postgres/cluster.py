"""The cluster: initdb, the settings the server starts with, and who may log in.

Both settings files lie in the root, which belongs to whoever starts the server, and are written anew at each start: a
newer version of ours brings its own values. What an operator sets with ALTER SYSTEM wins over them."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from collections.abc import Mapping
from pathlib import Path

from db.errors import DatabaseUnavailable
from db.postgres.account import Account, give, run_as
from db.postgres.binaries import MAJOR

OWNER = "tenure"
"""The superuser of the embedded cluster and owner of its databases. Migrations use it, the application does not."""

SETTINGS: Mapping[str, str] = {
    "max_connections": "200",
    "shared_buffers": "256MB",
    "max_wal_size": "2GB",
    "min_wal_size": "128MB",
    "wal_compression": "on",
    "checkpoint_timeout": "10min",
    "random_page_cost": "1.1",
    "autovacuum_naptime": "10s",  # dead entries at the head of the claim's index cost every claim
    # No statement of ours gains from it, and it needs /dev/shm, which is 64 MB in a container.
    "max_parallel_workers_per_gather": "0",
    "jit": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "lc_messages": "C",
    "datestyle": "iso, ymd",
    "log_min_messages": "warning",
    "log_line_prefix": "%m [%p] %q%u@%d %a ",
    "log_checkpoints": "off",
    # Statements, and the DETAIL of an error ("Key (email)=(...) already exists"), name people: not in a log.
    "log_min_error_statement": "panic",
    "log_error_verbosity": "terse",
}

NOT_DURABLE: Mapping[str, str] = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
"""For tests: a power cut may destroy the cluster."""

ACCESS = """\
# Written by Tenure at each start. Other people on this machine can reach the port: everyone needs a password.
local all all scram-sha-256
host  all all 127.0.0.1/32 scram-sha-256
"""


def init_cluster(root: Path, programs: Path, account: Account | None, password: str, *, sync: bool) -> None:
    """Make `root/cluster`, complete or not at all. UTF-8 with PostgreSQL's own C.UTF-8, the same on every machine and
    libc."""
    unfinished = root / "cluster.new"
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(mode=0o700)
    give(unfinished, account)
    descriptor, secret = tempfile.mkstemp(dir=root)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(password)
        give(Path(secret), account)
        initdb: list[str | Path] = [
            programs / "initdb",
            "--pgdata",
            unfinished,
            "--username",
            OWNER,
            "--pwfile",
            secret,
        ]
        locale = ["--encoding=UTF8", "--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        ended = run_as(
            account, [*initdb, *locale, "--auth=scram-sha-256", *([] if sync else ["--no-sync"])], timeout=120
        )
    finally:
        os.unlink(secret)
    if "could not look up effective user ID" in ended.stderr:
        raise DatabaseUnavailable(
            "initdb wants a name for the user it runs as: add the user id to /etc/passwd, start as root, "
            "or set TENURE_DATABASE_URL."
        )
    if ended.returncode != 0:
        raise DatabaseUnavailable(f"initdb failed in {unfinished}.\n{(ended.stdout + ended.stderr)[-2000:]}")
    unfinished.rename(root / "cluster")


def check_version(cluster: Path) -> None:
    """Raise DatabaseUnavailable when another major version made the cluster: PostgreSQL would not start on it."""
    found = (cluster / "PG_VERSION").read_text().strip()
    if found != str(MAJOR):
        raise DatabaseUnavailable(f"{cluster} was made by PostgreSQL {found}, this is {MAJOR}: dump and restore it.")


def write_settings(root: Path, settings: Mapping[str, str]) -> None:
    """Replace `root/server.conf` and `root/access.conf`; the server's user may read them and not write."""
    lines = ["# Written by Tenure at each start. Use ALTER SYSTEM for settings of your own."]
    lines += [f"{name} = {_quoted(value)}" for name, value in settings.items()]
    for name, text in {"server.conf": "\n".join(lines) + "\n", "access.conf": ACCESS}.items():
        path = root / name
        path.write_text(text)
        path.chmod(0o644)


def free_port() -> int:
    """A port of the loopback that nobody listens on at this moment. Another may take it before us: see
    postmaster.start."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _quoted(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "''") + "'"
