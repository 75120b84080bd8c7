"""A PostgreSQL with the settings of production (fsync and full_page_writes on), the launcher, and the world outside."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from db.embedded import ensure_server
from db.migrate import upgrade
from db.session import Database
from tests.crash import closing, judge
from tests.crash.ahead import Ahead, asked_for, played_ahead
from tests.crash.receiver import Mailbox, Receiver, a_mailbox, a_receiver
from tests.crash.scenes import SCENES
from tests.crash.story import EXTRA, Theatre
from tests.crash.workers import Launcher, a_launcher
from tests.database import SharedServer, server_folder

TEMPLATE = "watched"


@pytest.fixture(scope="session")
def safe_folder() -> Iterator[Path]:
    """The data folder of the server that all crash tests share."""
    with server_folder() as folder:
        yield folder


@pytest.fixture(scope="session")
def safe_server(safe_folder: Path) -> SharedServer:
    """That server. Its fresh databases are migrated and watched (invariants.sql)."""
    own = ensure_server(safe_folder, extra=EXTRA)
    server = SharedServer(own.owner_url("postgres"), own.app_url("postgres"), TEMPLATE)
    server.execute("CREATE DATABASE {} TEMPLATE template0 STRATEGY FILE_COPY", TEMPLATE)
    template = server.database(TEMPLATE)
    upgrade(template)
    judge.install(template)
    template.close()
    return server


@pytest.fixture
def watched(safe_server: SharedServer) -> Iterator[Database]:
    """A fresh database of the safe server."""
    with safe_server.fresh() as database:
        yield database


@pytest.fixture(scope="session")
def launcher() -> Iterator[Launcher]:
    """Starts worker processes."""
    with a_launcher() as opened:
        yield opened


@pytest.fixture(scope="session")
def receiver() -> Iterator[Receiver]:
    """The endpoint."""
    with a_receiver() as opened:
        yield opened


@pytest.fixture(scope="session")
def relay() -> Iterator[tuple[Mailbox, int]]:
    """The mail relay, and its port."""
    with a_mailbox() as opened:
        yield opened


@pytest.fixture(scope="session")
def theatre(
    safe_folder: Path, safe_server: SharedServer, launcher: Launcher, receiver: Receiver, relay: tuple[Mailbox, int]
) -> Theatre:
    """All of it."""
    return Theatre(safe_folder, safe_server, launcher, receiver, relay)


@pytest.fixture(scope="session")
def scenes(request: pytest.FixtureRequest, theatre: Theatre) -> Iterator[Ahead[str, None]]:
    """The scenes that are asked for. They are mostly waiting, so they begin with whatever test wants them first."""
    names = [name for (name,) in asked_for(request, "scene")]
    with played_ahead(lambda name: SCENES[name](theatre), names, side_by_side=len(SCENES)) as ahead:
        yield ahead


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The closing table."""
    if closing.LINES:
        terminalreporter.section("what the workers went through")
        for line in closing.table():
            terminalreporter.write_line(line)
