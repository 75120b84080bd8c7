"""The embedded PostgreSQL: a real server of our own over a folder, for people who have none.

    server = ensure_server(data_dir)        # starts it, joins a running one, or recovers one that was killed
    server.owner_url(), server.app_url()    # over a Unix socket; tcp=True for 127.0.0.1 (asyncpg, psql)
    stop_server(data_dir)                   # for everyone who uses it

Any number of processes may call ensure_server for one folder at once: a lock lets one of them start it, the others
join. The server outlives whoever started it, however that ends. It is not counted who uses it: `tenure up` stops it
at its end if `server.started` said that it was the one to start it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import psycopg
from psycopg import sql
from sqlalchemy import URL

from db.errors import DatabaseUnavailable
from db.postgres import cluster as clusters
from db.postgres import folder, postmaster
from db.postgres.account import Account, give, server_account
from db.postgres.binaries import usable_binaries
from db.roles import APP_ROLE, ensure_app_login
from db.settings import DRIVER

DATABASE = "tenure"
START_WITHIN = 60.0
"""Seconds until the server must answer, recovery after a crash included."""
STOP_WITHIN = 30
"""Seconds a stop may take before it is done without a checkpoint: the next start then recovers."""


@dataclass(frozen=True)
class EmbeddedServer:
    """A server that answers, has the database `tenure` and lets role tenure_app log in."""

    data_dir: Path
    record: folder.Record
    started: bool
    """Whether this call started it. False: it ran already."""

    @property
    def port(self) -> int:
        """On 127.0.0.1. It may be another after a restart, when somebody took this one."""
        return self.record.port

    @property
    def socket_dir(self) -> Path:
        return self.data_dir / self.record.socket_dir

    @property
    def root(self) -> Path:
        """Where cluster, log and settings are: in the data folder, unless the server's user could not get there."""
        return self.data_dir / self.record.root

    def owner_url(self, database: str = DATABASE, *, tcp: bool = False) -> URL:
        """As the superuser who owns everything: for migrations."""
        return self._url(clusters.OWNER, self.record.owner_password, database, tcp)

    def app_url(self, database: str = DATABASE, *, tcp: bool = False) -> URL:
        """As tenure_app, which owns nothing."""
        return self._url(APP_ROLE, self.record.app_password, database, tcp)

    def ensure_database(self, name: str) -> None:
        """Create a database of that name unless there is one (Prefect's own, say)."""
        with _connect(self, "postgres") as connection:
            _ensure_database(connection, name)

    def _url(self, role: str, password: str, database: str, tcp: bool) -> URL:
        host = "127.0.0.1" if tcp else None
        query = {} if tcp else {"host": str(self.socket_dir)}
        return URL.create(DRIVER, role, password, host=host, port=self.port, database=database, query=query)


def ensure_server(data_dir: Path, *, fsync: bool = True, extra: Mapping[str, str] | None = None) -> EmbeddedServer:
    """The server over `data_dir`, answering. Safe to call from many processes at once, as root and as an ordinary
    user.

    `fsync=False` (tests) gives durability up; `extra` holds further settings of PostgreSQL by name. Both matter only
    when this call starts the server. Raises DatabaseUnavailable, with the end of the server's log, when it does not
    answer within 60 s."""
    data_dir = data_dir.absolute()
    folder.make_folder(data_dir)
    record = folder.read_record(data_dir)
    if record is not None and _is_ready(running := EmbeddedServer(data_dir, record, started=False)):
        return running
    settings = {**clusters.SETTINGS, **({} if fsync else clusters.NOT_DURABLE), **(extra or {})}
    with folder.folder_lock(data_dir, timeout=2 * START_WITHIN):
        server = _start(data_dir, settings)
        with _connect(server, "postgres") as connection:
            _ensure_database(connection, DATABASE)
            ensure_app_login(connection, server.record.app_password)
        return server


def stop_server(data_dir: Path) -> bool:
    """Stop the server over `data_dir` for everyone. False when none ran. Raises DatabaseUnavailable when it would not
    stop."""
    data_dir = data_dir.absolute()
    record = folder.read_record(data_dir) if data_dir.exists() else None
    if record is None:
        return False
    with folder.folder_lock(data_dir, timeout=2 * START_WITHIN):
        root = data_dir / record.root
        if postmaster.live_postmaster(root / "cluster") is None:
            return False
        account = server_account(data_dir, root / "cluster")
        if not postmaster.halt(root, usable_binaries(root, account), account, timeout=STOP_WITHIN):
            raise _failure(root, "The embedded PostgreSQL does not stop.")
        return True


def _start(data_dir: Path, settings: Mapping[str, str]) -> EmbeddedServer:
    """Under the lock: join what runs by now, or start it, until it answers or the time is up."""
    record, account = _prepared(data_dir)
    root = data_dir / record.root
    deadline = time.monotonic() + START_WITHIN
    if _answers_while_alive(EmbeddedServer(data_dir, record, started=False), deadline):
        return EmbeddedServer(data_dir, record, started=False)
    programs = usable_binaries(root, account)
    if not (root / "cluster").exists():
        durable = settings.get("fsync") != "off"
        clusters.init_cluster(root, programs, account, record.owner_password, sync=durable)
    clusters.check_version(root / "cluster")
    record = folder.with_socket_dir(data_dir, record, account)
    while time.monotonic() < deadline:
        record = replace(record, port=record.port or clusters.free_port())
        folder.write_record(data_dir, record)
        server = EmbeddedServer(data_dir, record, started=True)
        place = {
            "listen_addresses": "127.0.0.1",
            "port": str(record.port),
            "unix_socket_directories": str(server.socket_dir),
        }
        clusters.write_settings(root, {**settings, **place})
        postmaster.forget_dead_postmaster(root / "cluster", server.socket_dir)
        since = postmaster.log_size(root)
        postmaster.launch(root, programs, account, timeout=deadline - time.monotonic())
        if _answers_while_alive(server, deadline):
            return server
        said = postmaster.read_log(root, since)
        if "could not create any TCP/IP sockets" in said:
            record = replace(record, port=0)
        elif "shared memory block" not in said:  # of a killed server, whose last children take a moment to go
            raise _failure(root, "The embedded PostgreSQL did not start.")
        time.sleep(0.1)
    raise _failure(root, f"The embedded PostgreSQL did not start within {START_WITHIN:.0f} s.")


def _prepared(data_dir: Path) -> tuple[folder.Record, Account | None]:
    """The folder's record, made at the first start and written before anything depends on it, and who runs the
    server."""
    record = folder.read_record(data_dir)
    if record is not None:
        root = data_dir / record.root
        if not root.exists():
            raise DatabaseUnavailable(
                f"The database of {data_dir} was kept in {root}, which is gone (a container made anew?): restore it, "
                f"or remove {data_dir / 'postgres.json'} to begin with an empty one."
            )
        return record, server_account(data_dir, root / "cluster")
    if (data_dir / "postgres" / "cluster").exists():
        raise DatabaseUnavailable(
            f"{data_dir} has lost postgres.json, which holds the passwords of its database: restore it."
        )
    account = server_account(data_dir, None)
    record = folder.new_record(data_dir, account)
    log = data_dir / record.root / "log"
    log.mkdir(mode=0o700, exist_ok=True)
    give(log, account)
    folder.write_record(data_dir, record)
    return record, account


def _answers_while_alive(server: EmbeddedServer, deadline: float) -> bool:
    """Wait for an answer for as long as its process lives. False once that is gone. An answer counts more than what
    the pid file says. Raises DatabaseUnavailable at the deadline."""
    while not _answers(server):
        if postmaster.live_postmaster(server.root / "cluster") is None:
            return False
        if time.monotonic() > deadline:
            raise _failure(server.root, f"The embedded PostgreSQL does not answer within {START_WITHIN:.0f} s.")
        time.sleep(0.02)
    return True


def _answers(server: EmbeddedServer) -> bool:
    try:
        _connect(server, "postgres").close()
    except psycopg.OperationalError as error:
        if "password authentication failed" in str(error):
            place = server.data_dir / "postgres.json"
            raise DatabaseUnavailable(f"The passwords in {place} are not those of its server.") from None
        return False
    return True


def _is_ready(server: EmbeddedServer) -> bool:
    """Whether the application can log in: then there is nothing to do, and no lock to take."""
    try:
        _connect(server, DATABASE, app=True).close()
    except psycopg.OperationalError:
        return False
    return True


def _connect(server: EmbeddedServer, database: str, *, app: bool = False) -> psycopg.Connection[tuple[object, ...]]:
    role, password = (APP_ROLE, server.record.app_password) if app else (clusters.OWNER, server.record.owner_password)
    return psycopg.connect(
        host=str(server.socket_dir),
        port=server.port,
        user=role,
        password=password,
        dbname=database,
        connect_timeout=5,
        autocommit=True,
        options="",
    )


def _ensure_database(connection: psycopg.Connection[tuple[object, ...]], name: str) -> None:
    if connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name]).fetchone() is None:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))


def _failure(root: Path, sentence: str) -> DatabaseUnavailable:
    return DatabaseUnavailable(f"{sentence} The end of {root / 'log' / 'server.log'}:\n{postmaster.read_log(root)}")
