"""What the tests of the engine and of the API set up alike.

acme        a realm of its own, in the database of the file
worker      a worker on that database
endpoint    an HTTP server of the test's own, and a subscription of `acme` that calls it
api         the API over that database, called by the administrator of a realm that the file shares
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pytest_httpserver import HTTPServer

from db.session import Database
from engine.lifecycle.worker import Worker
from tests.calling import Api, an_api
from tests.driver import working
from tests.endpoints import Endpoint
from tests.factories import TestRealm, a_realm


@pytest.fixture
def acme(module_database: Database) -> TestRealm:
    return a_realm(module_database)


@pytest.fixture
def worker(module_database: Database) -> Iterator[Worker]:
    with working(module_database) as worker:
        yield worker


@pytest.fixture
def endpoint(httpserver: HTTPServer, acme: TestRealm) -> Endpoint:
    return Endpoint(httpserver, acme)


@pytest.fixture(scope="module")
def api(module_database: Database) -> Iterator[Api]:
    with an_api(module_database) as api:
        yield api
