"""Bringing a database to the tables this version needs.

    upgrade(database) -> revisions applied       current(database) -> revision or None       head() -> revision or None

Any number of processes may call upgrade at once: one works, the others wait and find nothing left to do. There is no
way down: a revision that was applied is corrected by the next one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any

from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text
from sqlmodel import SQLModel

from db import tables  # noqa: F401  the tables register themselves in SQLModel.metadata
from db.errors import DatabaseUnavailable
from db.roles import ensure_app_role
from db.session import Database

LOCK_KEY = 0x74656E757265
"""Of the advisory lock: "tenure" in ASCII. Advisory locks belong to one database, so nobody else's is in the way."""
LOCK_WITHIN = 300.0
"""Seconds another process may migrate before we give up waiting for it."""

_one_at_a_time = Lock()  # alembic keeps its context in a module: within a process only one may run


def upgrade(database: Database) -> list[str]:
    """Apply all that is missing, from an empty database on; the revisions applied, in order.

    Creates role tenure_app first, if need be. Each revision is a transaction of its own. Raises DatabaseUnavailable
    when another process holds the lock for five minutes, or when the user may not provide the role."""
    applied: list[str] = []
    with _one_at_a_time, database.owner_engine.connect() as connection, _alone(connection):
        ensure_app_role(connection)
        connection.commit()
        command.upgrade(_config(connection, applied), "head")
        connection.commit()
    return applied


def current(database: Database) -> str | None:
    """The revision the database is at; None when it is empty."""
    with database.owner_engine.connect() as connection:
        return MigrationContext.configure(connection).get_current_revision()


def head() -> str | None:
    """The revision this version needs."""
    return ScriptDirectory.from_config(_config()).get_current_head()


def differences(database: Database) -> list[Any]:
    """What the tables of the code have and the database has not, or the other way round, as alembic tells it. Empty
    is right."""
    with database.owner_engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
        return list(compare_metadata(context, SQLModel.metadata))


def draft(database: Database, message: str) -> Path:
    """Write the next revision from the differences, for a person to read and correct. The database must be at the
    head."""
    with _one_at_a_time, database.owner_engine.connect() as connection:
        script = command.revision(_config(connection), message=message, autogenerate=True)
    assert script is not None
    assert not isinstance(script, list)
    return Path(script.path)


@contextmanager
def _alone(connection: Connection) -> Iterator[None]:
    """The advisory lock, held by the session over all its transactions. It is asked for again and again instead of
    waited for: a waiting statement keeps a snapshot, which CREATE INDEX CONCURRENTLY in the other process would wait
    for in turn."""
    deadline = time.monotonic() + LOCK_WITHIN
    while not connection.scalar(text("SELECT pg_try_advisory_lock(:key)"), {"key": LOCK_KEY}):
        connection.rollback()
        if time.monotonic() > deadline:
            raise DatabaseUnavailable(f"Another process has been migrating this database for {LOCK_WITHIN:.0f} s.")
        time.sleep(0.1)
    connection.commit()
    try:
        yield
    finally:
        connection.rollback()
        connection.execute(text("SELECT pg_advisory_unlock(:key)"), {"key": LOCK_KEY})
        connection.commit()


def _config(connection: Connection | None = None, applied: list[str] | None = None) -> Config:
    """Alembic's configuration, made in code: migrations/env.py finds connection and list in its attributes."""
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    config.attributes["connection"] = connection
    config.attributes["applied"] = [] if applied is None else applied
    return config
