"""What every test may ask for.

postgres          the server all tests of the run share (tests/database.py)
database          a fresh, migrated database for one test
module_database   the same for all tests of one file, which then share its rows
empty_database    a fresh database before any migration
own_folder        a data folder for an embedded server of the test's own
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from db.session import Database
from tests.database import SharedServer, server_folder, shared_server


@pytest.fixture(scope="session")
def postgres() -> Iterator[SharedServer]:
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID") or uuid.uuid4().hex
    with shared_server(run) as server:
        yield server


@pytest.fixture
def database(postgres: SharedServer) -> Iterator[Database]:
    with postgres.fresh() as database:
        yield database


@pytest.fixture(scope="module")
def module_database(postgres: SharedServer) -> Iterator[Database]:
    with postgres.fresh() as database:
        yield database


@pytest.fixture
def empty_database(postgres: SharedServer) -> Iterator[Database]:
    with postgres.fresh(empty=True) as database:
        yield database


@pytest.fixture
def own_folder() -> Iterator[Path]:
    with server_folder() as folder:
        yield folder
