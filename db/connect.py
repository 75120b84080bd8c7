"""What every connection says when it logs in, and the engines over such connections.

All of it travels in libpq's `options`, not as SET statements afterwards: it costs no round trip, and RESET, RESET ALL
and DISCARD come back to these values instead of leaving them.

The role is one of them (`-c role=tenure_app`), so that RESET ROLE, too, comes back to tenure_app. What it does not
stop, where one login serves migrations and application (only TENURE_DATABASE_URL is set), is SET ROLE NONE: that
needs a statement of an attacker's choice. A login of the application's own stops it as well: the embedded server has
one, TENURE_APP_DATABASE_URL is it elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from psycopg import Connection
from psycopg.types.json import set_json_dumps
from sqlalchemy import URL, Engine, NullPool, create_engine, event

from db.errors import DatabaseUnavailable
from db.json import dumps
from db.roles import APP_ROLE
from db.settings import DatabaseSettings

OLDEST = 150_000
"""PostgreSQL 15, as libpq counts."""

COMMON = {"TimeZone": "UTC", "search_path": "public", "client_encoding": "UTF8"}

KEEPALIVE = {"keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3, "tcp_user_timeout": 60_000}
"""A peer that vanished without a word is noticed within a minute."""


def app_arguments(url: URL, settings: DatabaseSettings, application_name: str) -> dict[str, Any]:
    """libpq's arguments of an application's connection, beyond the URL: role, timeouts, UTC."""
    values = {
        "role": APP_ROLE,
        "statement_timeout": milliseconds(settings.statement_timeout),
        "lock_timeout": milliseconds(settings.lock_timeout),
        "idle_in_transaction_session_timeout": milliseconds(settings.idle_in_transaction_timeout),
    }
    return _arguments(url, settings, application_name, values)


def app_engine(url: URL, settings: DatabaseSettings, application_name: str) -> Engine:
    """The pool of the application. A connection is not asked for a sign of life before use: after an outage the first
    statement fails, as it might anyway, and the pool then replaces all that are older."""
    engine = create_engine(
        url,
        connect_args=app_arguments(url, settings, application_name),
        json_serializer=dumps,
        hide_parameters=True,  # an error's text may reach a log that every operator reads
        pool_size=settings.pool_size,
        max_overflow=settings.pool_overflow,
        pool_timeout=settings.pool_timeout.total_seconds(),
        pool_pre_ping=False,
        pool_use_lifo=True,
    )
    event.listen(engine, "connect", _greet)
    return engine


def owner_engine(url: URL, settings: DatabaseSettings, application_name: str) -> Engine:
    """For migrations: no pool, no time limit to a statement, but one to a lock, because everyone queues behind a
    waiting ALTER."""
    values = {"statement_timeout": "0", "lock_timeout": milliseconds(settings.lock_timeout)}
    arguments = _arguments(url, settings, f"{application_name} migration", values)
    engine = create_engine(url, connect_args=arguments, json_serializer=dumps, hide_parameters=True, poolclass=NullPool)
    event.listen(engine, "connect", _greet)
    return engine


def milliseconds(duration: timedelta) -> str:
    """A timeout as PostgreSQL takes it."""
    return str(duration // timedelta(milliseconds=1))


def _arguments(
    url: URL, settings: DatabaseSettings, application_name: str, values: Mapping[str, str]
) -> dict[str, Any]:
    """Options in the operator's URL come first, ours after them: of two, the last counts."""
    given = url.query.get("options", "")
    options = [given if isinstance(given, str) else " ".join(given)]
    options += [f"-c {name}={value}" for name, value in {**COMMON, **values}.items()]
    return {
        **KEEPALIVE,
        "options": " ".join(options).strip(),
        "application_name": application_name,
        "connect_timeout": int(settings.connect_timeout.total_seconds()),
    }


def _greet(connection: Connection[Any], _record: object) -> None:
    """At each new connection of a pool: refuse a server that is too old, and dump psycopg's Json like SQLAlchemy's
    JSON."""
    if connection.info.server_version < OLDEST:
        raise DatabaseUnavailable(
            f"The server is PostgreSQL {connection.info.server_version // 10_000}; 15 is the oldest we use."
        )
    set_json_dumps(dumps, connection)
