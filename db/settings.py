"""Where the database is and how patient its connections are. Every name is read from the environment as
TENURE_<NAME>."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_settings import BaseSettings, SettingsConfigDict

DRIVER = "postgresql+psycopg"
SPELLINGS = ("postgres", "postgresql", DRIVER)
"""The schemes people paste; each becomes DRIVER, the only driver there is."""


def _absolute(path: Path) -> Path:
    return path.expanduser().resolve()


def with_driver(url: str) -> str:
    """The same URL with the driver SQLAlchemy shall use. Raises ValueError, without the URL: it holds a password."""
    scheme, separator, rest = url.strip().partition("://")
    if not separator or scheme not in SPELLINGS:
        raise ValueError("a database URL starts with postgresql://")
    return f"{DRIVER}://{rest}"


DatabaseUrl = Annotated[str, AfterValidator(with_driver)]


def _seconds(value: object) -> object:
    """A number in the environment is a number of seconds; pydantic alone takes text in the manner of PT30S or
    00:00:30 only."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


Duration = Annotated[timedelta, BeforeValidator(_seconds)]
Timeout = Annotated[Duration, Field(ge=timedelta(milliseconds=10), le=timedelta(hours=1))]


class DatabaseSettings(BaseSettings):
    """Without any URL the database is embedded: our own PostgreSQL in `data_dir` (db/embedded.py)."""

    model_config = SettingsConfigDict(
        env_prefix="TENURE_", env_ignore_empty=True, extra="ignore", frozen=True, hide_input_in_errors=True
    )

    data_dir: Annotated[Path, AfterValidator(_absolute)] = Field(default=Path(".tenure"), validate_default=True)
    """The folder of everything we keep on disk, made absolute at once: a later chdir must not mean another database."""
    database_url: DatabaseUrl | None = Field(default=None, repr=False)
    """A PostgreSQL of the operator's, 15 or newer. Its user owns the tables and applies the migrations."""
    app_database_url: DatabaseUrl | None = Field(default=None, repr=False)
    """A login of the application's own, a member of role tenure_app. Without it the application logs in with
    `database_url` and takes the role. With only this one, the process can work but not migrate."""

    pool_size: int = Field(default=10, ge=1, le=100)
    """Connections kept open."""
    pool_overflow: int = Field(default=10, ge=0, le=100)
    """Connections opened on top of it under load, and closed again."""
    pool_timeout: Timeout = timedelta(seconds=10)
    """How long a thread waits for a connection of the pool before it gives up."""
    connect_timeout: Annotated[Duration, Field(ge=timedelta(seconds=2), le=timedelta(minutes=5))] = timedelta(seconds=5)
    """How long one attempt to connect takes at most (libpq's own minimum is 2 s)."""

    statement_timeout: Timeout = timedelta(seconds=30)
    """A statement that runs longer is cancelled by the server."""
    lock_timeout: Timeout = timedelta(seconds=5)
    """A statement that waits longer for one lock is cancelled by the server."""
    idle_in_transaction_timeout: Timeout = timedelta(seconds=60)
    """A transaction left open without a statement for longer is ended: it holds locks and keeps vacuum away."""
