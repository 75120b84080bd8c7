"""The database as the rest of the program knows it.

    database = Database.open(DatabaseSettings())
    with database.begin() as connection: ...     # one transaction on a SQLAlchemy connection; commits at the end
    with database.session() as session: ...      # the same through a SQLModel session
    with database.listen("tenure_due") as due:
        due.wait(1.0)

Everything here works as role tenure_app, except `owner_engine`, which db/migrate.py alone uses.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from typing import Self

from sqlalchemy import URL, Connection, Engine, make_url
from sqlmodel import Session

from db.connect import app_arguments, app_engine, owner_engine
from db.embedded import ensure_server
from db.errors import DatabaseUnavailable
from db.listen import Listener
from db.settings import DatabaseSettings


class Database:
    """Two ways in to one database: the owner's, for migrations, and the application's pool. Opening it connects
    nowhere yet."""

    def __init__(
        self, owner_url: URL | None, app_url: URL, settings: DatabaseSettings, *, application_name: str = "tenure"
    ) -> None:
        """`owner_url` None: a process that was given the application's login alone, and cannot migrate."""
        self.owner_url = owner_url
        self.app_url = app_url
        self.settings = settings
        self.application_name = application_name

    @classmethod
    def open(cls, settings: DatabaseSettings, *, application_name: str = "tenure") -> Self:
        """The database the settings name: the operator's, or the embedded one, which is started unless it runs.

        Raises DatabaseUnavailable when the embedded one does not start. An operator's is not tried before the first
        statement."""
        if settings.database_url is not None or settings.app_database_url is not None:
            owner_url = make_url(settings.database_url) if settings.database_url is not None else None
            app_url = make_url(settings.app_database_url) if settings.app_database_url is not None else owner_url
            assert app_url is not None
            return cls(owner_url, app_url, settings, application_name=application_name)
        server = ensure_server(settings.data_dir)
        return cls(server.owner_url(), server.app_url(), settings, application_name=application_name)

    @cached_property
    def engine(self) -> Engine:
        """The application's pool."""
        return app_engine(self.app_url, self.settings, self.application_name)

    @cached_property
    def owner_engine(self) -> Engine:
        """For migrations only. Raises DatabaseUnavailable when this process has only the application's login."""
        if self.owner_url is None:
            raise DatabaseUnavailable(
                "Only TENURE_APP_DATABASE_URL is set: migrations need the owner's TENURE_DATABASE_URL."
            )
        return owner_engine(self.owner_url, self.settings, self.application_name)

    def begin(self) -> AbstractContextManager[Connection]:
        """A transaction: committed at the end of the block, rolled back when it raises."""
        return self.engine.begin()

    @contextmanager
    def session(self) -> Iterator[Session]:
        """A transaction through SQLModel: committed at the end of the block, rolled back when it raises. Objects stay
        readable after the commit."""
        with Session(self.engine, expire_on_commit=False) as session, session.begin():
            yield session

    def listen(self, channel: str) -> Listener:
        """Listen on a connection of its own, outside the pool. Raises psycopg.OperationalError when there is no
        database now."""
        arguments = app_arguments(self.app_url, self.settings, f"{self.application_name} listen {channel}")
        conninfo = self.app_url.set(drivername="postgresql").render_as_string(hide_password=False)
        return Listener(channel, {"conninfo": conninfo, **arguments})

    def close(self) -> None:
        """Close the pool. The server goes on running."""
        for name in ("engine", "owner_engine"):
            if name in self.__dict__:
                self.__dict__.pop(name).dispose()
