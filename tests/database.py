"""The server the tests share, and fresh databases on it.

One server a test run, for all xdist workers: the first that needs it starts it, the last one out stops it. Who is in
is known by a shared lock on a file, which the kernel takes back from a worker that was killed; what a killed run left
over is cleared away by the next one. TENURE_TEST_DATABASE_URL names a server to use instead (a superuser of it, 15 or
newer).

A fresh database is a copy of a migrated template: 30 ms instead of all migrations. That holds where the files lie in
memory; on a disk of a virtual machine it was 150 to 350 ms.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import LiteralString

import psycopg
from psycopg import sql
from sqlalchemy import URL, make_url

from db.embedded import ensure_server, stop_server
from db.migrate import upgrade
from db.session import Database
from db.settings import DatabaseSettings, with_driver

FAST = {
    "shared_buffers": "128MB",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "autovacuum_naptime": "60s",
    "scram_iterations": "1",
}
PREFIX = f"tenure-tests-{os.getuid()}-"
IN_MEMORY = Path("/dev/shm")
ROOM = 2 * 1024**3
"""Bytes the memory file system must have for the shared server to live there. Its size, not what is free now: all
workers must come to the same answer."""


@dataclass(frozen=True)
class SharedServer:
    """Where fresh databases come from."""

    owner_url: URL
    """To the maintenance database, as a superuser."""
    app_url: URL | None
    """As tenure_app; None on a server that is not ours, where the application takes its role with the owner's login."""
    template: str

    def database(self, name: str, *, application_name: str = "tests") -> Database:
        """The two ways in to a database of this server, with a small pool."""
        settings = DatabaseSettings(data_dir=Path("/nonexistent"), pool_size=5, pool_overflow=20)
        owner_url = self.owner_url.set(database=name)
        app_url = owner_url if self.app_url is None else self.app_url.set(database=name)
        return Database(owner_url, app_url, settings, application_name=application_name)

    @contextmanager
    def fresh(self, *, empty: bool = False) -> Iterator[Database]:
        """A new database, migrated unless `empty`, and gone at the end."""
        name = f"t_{secrets.token_hex(8)}"
        template = "template1" if empty else self.template
        self.execute("CREATE DATABASE {} TEMPLATE {} STRATEGY FILE_COPY", name, template)
        database = self.database(name)
        try:
            yield database
        finally:
            database.close()
            self.execute("DROP DATABASE {} WITH (FORCE)", name)

    def execute(self, statement: LiteralString, *names: str) -> None:
        """One statement on the maintenance database, outside a transaction."""
        with psycopg.connect(plain(self.owner_url), autocommit=True) as connection:
            connection.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))


@contextmanager
def shared_server(run: str) -> Iterator[SharedServer]:
    """Be one of the workers of test run `run`, from the first use of the server to the last."""
    _clear_away_killed_runs()
    folder = _place() / f"{PREFIX}{run}"
    with _in(folder) as descriptor:
        server = _started(folder, f"tenure_template_{run[:16]}")
        try:
            yield server
        finally:
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            if _alone(descriptor):
                server.execute("DROP DATABASE IF EXISTS {} WITH (FORCE)", server.template)
                _clear_away(folder)


@contextmanager
def server_folder() -> Iterator[Path]:
    """A data folder for a server of the test's own, durable unless it says otherwise; stopped and removed at the end.
    Not pytest's tmp_path: as root that lies in a folder which the server's user cannot enter."""
    folder = Path(tempfile.mkdtemp(prefix="tenure-own-", dir=_place()))
    folder.chmod(0o755)
    try:
        yield folder / "data"
    finally:
        for record in folder.rglob("postgres.json"):
            stop_server(record.parent)
        shutil.rmtree(folder)


def plain(url: URL) -> str:
    """The URL as psycopg and libpq take it, with the password."""
    return url.set(drivername="postgresql").render_as_string(hide_password=False)


def _started(folder: Path, template: str) -> SharedServer:
    """One at a time: start the server, if it is ours, and make the template, if it is not there yet."""
    with folder.with_suffix(".starting").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        given = os.environ.get("TENURE_TEST_DATABASE_URL")
        if given:
            server = SharedServer(make_url(with_driver(given)), None, template)
        else:
            folder.mkdir(exist_ok=True)
            folder.chmod(0o711)
            own = ensure_server(folder / "data", fsync=False, extra=FAST)
            server = SharedServer(own.owner_url("postgres"), own.app_url("postgres"), template)
        with psycopg.connect(plain(server.owner_url), autocommit=True) as connection:
            known = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [template]).fetchone()
        if known is None:
            unfinished = f"{template}_new"
            server.execute("DROP DATABASE IF EXISTS {} WITH (FORCE)", unfinished)
            server.execute("CREATE DATABASE {} TEMPLATE template0 STRATEGY FILE_COPY", unfinished)
            database = server.database(unfinished)
            upgrade(database)
            database.close()
            server.execute("ALTER DATABASE {} RENAME TO {}", unfinished, template)
        return server


def _place() -> Path:
    """In memory if there is room for all workers and programs may be run from there (a copy of PostgreSQL's,
    perhaps)."""
    if IN_MEMORY.is_dir():
        memory = os.statvfs(IN_MEMORY)
        if memory.f_blocks * memory.f_frsize >= ROOM and not memory.f_flag & os.ST_NOEXEC:
            return IN_MEMORY
    return Path(tempfile.gettempdir())


@contextmanager
def _in(folder: Path) -> Iterator[int]:
    """Hold a shared lock on the run's file. It may be removed between our opening and locking it: then once more."""
    path = folder.with_suffix(".lock")
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        if _is_still(path, descriptor):
            break
        os.close(descriptor)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _alone(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_still(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _clear_away_killed_runs() -> None:
    for path in _place().glob(f"{PREFIX}*.lock"):
        try:
            descriptor = os.open(path, os.O_RDWR)
        except FileNotFoundError:
            continue
        if _alone(descriptor) and _is_still(path, descriptor):
            _clear_away(path.with_suffix(""))
        os.close(descriptor)


def _clear_away(folder: Path) -> None:
    """Under the exclusive lock: nobody is in."""
    if folder.exists():
        stop_server(folder / "data")
        shutil.rmtree(folder)
    folder.with_suffix(".starting").unlink(missing_ok=True)
    folder.with_suffix(".lock").unlink(missing_ok=True)
