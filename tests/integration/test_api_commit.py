"""What is answered is what was committed: failing commits, lost races, a database that is away, and many callers at once."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta

import httpx
import pytest
from sqlalchemy import text

from api.app import create_app
from api.parts import Parts
from api.settings import ApiSettings
from db.session import Database
from db.settings import DatabaseSettings
from tests.calling import ISSUER, PATIENT, Api, an_api, caller, problem, serve, the_server
from tests.factories import KEYRING, a_realm, unique


@pytest.fixture
def api(database: Database) -> Iterator[Api]:
    with an_api(database) as api:
        yield api


def new_user(api: Api, name: str | None = None) -> httpx.Response:
    return api.post("/users", {"email": f"{name or unique('u')}@example.org", "display_name": "Someone"})


def refuse_at_commit(database: Database, sqlstate: str) -> None:
    with database.owner_engine.begin() as connection:
        connection.execute(
            text(f"""
            CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN RAISE EXCEPTION 'the secret reason' USING ERRCODE = '{sqlstate}'; END $$""")
        )
        connection.execute(
            text("""
            CREATE CONSTRAINT TRIGGER refused AFTER INSERT OR UPDATE ON users
            DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION refuse()""")
        )


@pytest.mark.parametrize(
    ("sqlstate", "status", "code"),
    [
        ("P0001", 500, "internal_error"),
        ("40001", 503, "contention"),
        ("57P01", 503, "unavailable"),
        ("53200", 503, "unavailable"),
    ],
)
def test_a_commit_that_fails_is_never_answered_as_done(
    api: Api, database: Database, sqlstate: str, status: int, code: str
) -> None:
    there = api.realm.user()
    refuse_at_commit(database, sqlstate)
    for answer in (new_user(api, "grace"), api.post(f"/users/{there}/suspend")):
        refused = problem(answer, status, code)
        assert "secret" not in str(refused)
        assert (answer.headers.get("retry-after") is not None) == (status == 503)
    assert api.get("/users", email="grace@example.org").json()["items"] == []
    assert api.get(f"/users/{there}").json()["state"] == "active"


def test_a_waiting_lock_ends_as_contention_and_changes_nothing(api: Api, database: Database) -> None:
    ada = api.realm.user()
    quick = database.settings.model_copy(update={"lock_timeout": timedelta(milliseconds=100)})
    impatient = Database(database.owner_url, database.app_url, quick)
    the_server()[0].state.parts = Parts.open(ApiSettings(), impatient, KEYRING, ISSUER)
    with database.begin() as connection:
        connection.execute(text("SELECT 1 FROM users WHERE id = :id FOR UPDATE"), {"id": ada})
        answer = api.post(f"/users/{ada}/suspend")
    problem(answer, 503, "contention")
    assert answer.headers["retry-after"] == "1"
    assert api.post(f"/users/{ada}/suspend").json()["state"] == "suspended"
    impatient.close()


def test_a_statement_that_takes_too_long_is_answered_as_what_passes(
    api: Api, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    short = database.settings.model_copy(update={"statement_timeout": timedelta(milliseconds=100)})
    hasty = Database(database.owner_url, database.app_url, short)
    the_server()[0].state.parts = Parts.open(ApiSettings(), hasty, KEYRING, ISSUER)
    with database.owner_engine.begin() as connection:
        connection.execute(text("LOCK TABLE roles IN ACCESS EXCLUSIVE MODE"))
        answer = api.get("/roles")
    refused = problem(answer, 503, "overloaded")
    assert refused["detail"].startswith("The database did not get this done")
    assert answer.headers["retry-after"] == "1"
    assert f"{answer.headers['x-request-id']} failed: QueryCanceled 57014" in caplog.text
    assert api.get("/roles").status_code == 200
    hasty.close()


def test_an_error_nobody_expected_says_nothing_and_is_logged_without_what_was_sent(
    api: Api, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    with database.owner_engine.begin() as connection:
        connection.execute(text("ALTER TABLE users ADD CONSTRAINT nobody CHECK (email NOT LIKE 'mark%')"))
    answer = new_user(api, "mark-7f3a9")
    refused = problem(answer, 500, "internal_error")
    assert "mark" not in str(refused)
    assert answer.headers["x-request-id"] in caplog.text
    assert "CheckViolation" in caplog.text
    assert "mark-7f3a9" not in caplog.text


def test_an_error_outside_of_all_handlers_is_a_problem_too(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    app, reason = create_app(), "a secret"

    @app.get("/broken")
    def broken() -> None:
        raise ZeroDivisionError(reason)

    answer = httpx.get(f"{serve(app)}/broken")
    assert "secret" not in str(problem(answer, 500, "internal_error"))
    assert "ZeroDivisionError" in caplog.text
    assert "secret" not in caplog.text


def test_without_a_database_the_api_says_so_and_recovers(api: Api, database: Database) -> None:
    nowhere = database.app_url.set(host="127.0.0.1", port=1)
    settings = DatabaseSettings(data_dir=database.settings.data_dir, connect_timeout=timedelta(seconds=2))
    app = the_server()[0]
    working = app.state.parts
    app.state.parts = Parts.open(ApiSettings(), Database(None, nowhere, settings), KEYRING, ISSUER)
    answer = api.get("/users")
    problem(answer, 503, "unavailable")
    assert answer.headers["retry-after"] == "5"
    problem(api.client.get("/health/ready"), 503, "unavailable")
    assert api.client.get("/health/live").status_code == 200
    app.state.parts = working
    assert api.client.get("/health/ready").status_code == 200
    assert api.get("/users").status_code == 200


def test_a_database_without_tables_is_not_ready(empty_database: Database) -> None:
    app, base_url = the_server()
    app.state.parts = Parts.open(ApiSettings(), empty_database, KEYRING, ISSUER)
    with httpx.Client(base_url=base_url) as client:
        problem(client.get("/health/ready"), 503, "unavailable")


def test_more_callers_than_connections_all_get_their_turn(database: Database) -> None:
    """Waiting for a connection in a thread would leave no thread to those who have one."""
    settings = database.settings.model_copy(
        update={"pool_size": 2, "pool_overflow": 0, "pool_timeout": timedelta(seconds=20)}
    )
    small = Database(database.owner_url, database.app_url, settings)
    app, base_url = the_server()
    app.state.parts = Parts.open(ApiSettings(), small, KEYRING, ISSUER)
    limits = httpx.Limits(max_connections=60)
    with httpx.Client(base_url=base_url, timeout=60, limits=limits) as client, ThreadPoolExecutor(60) as threads:
        api = caller(client, a_realm(database))
        answers = list(threads.map(lambda _: new_user(api).status_code, range(60)))
    small.close()
    assert answers == [201] * 60


@contextmanager
def one_connection(database: Database, pool_timeout: timedelta) -> Iterator[tuple[Parts, str]]:
    """The parts of an API that has one connection, and its address."""
    settings = {"pool_size": 1, "pool_overflow": 0, "pool_timeout": pool_timeout}
    small = Database(database.owner_url, database.app_url, database.settings.model_copy(update=settings))
    app, base_url = the_server()
    parts = app.state.parts = Parts.open(PATIENT, small, KEYRING, ISSUER)
    yield parts, base_url
    small.close()


def test_a_turn_that_does_not_come_is_not_waited_for_without_end(api: Api, database: Database) -> None:
    ada = api.realm.user()
    with (
        one_connection(database, timedelta(seconds=1)),
        ThreadPoolExecutor(1) as threads,
        database.begin() as connection,
    ):
        connection.execute(text("SELECT 1 FROM users WHERE id = :id FOR UPDATE"), {"id": ada})
        holding = threads.submit(api.post, f"/users/{ada}/suspend")
        _until_somebody_waits_for_a_lock(database)
        problem(api.get("/users"), 503, "overloaded")
        connection.rollback()
        assert holding.result(30).status_code == 200
        assert api.get("/users").status_code == 200


def test_readiness_does_not_wait_long_for_its_turn_or_its_answer(api: Api, database: Database) -> None:
    ada = api.realm.user()
    patient = timedelta(seconds=60)
    with one_connection(database, patient), ThreadPoolExecutor(1) as threads, database.begin() as connection:
        connection.execute(text("SELECT 1 FROM users WHERE id = :id FOR UPDATE"), {"id": ada})
        holding = threads.submit(api.post, f"/users/{ada}/suspend")
        _until_somebody_waits_for_a_lock(database)
        problem(api.client.get("/health/ready", timeout=4), 503, "overloaded")
        connection.rollback()
        assert holding.result(30).status_code == 200
    with one_connection(database, patient), database.owner_engine.begin() as connection:
        connection.execute(text("LOCK TABLE alembic_version IN ACCESS EXCLUSIVE MODE"))
        problem(api.client.get("/health/ready", timeout=4), 503, "overloaded")


def test_what_was_asked_by_who_has_hung_up_while_they_waited_is_not_begun(api: Api, database: Database) -> None:
    ada = api.realm.user()
    with (
        one_connection(database, timedelta(seconds=25)) as (parts, base_url),
        ThreadPoolExecutor(1) as threads,
        database.begin() as connection,
    ):
        connection.execute(text("SELECT 1 FROM users WHERE id = :id FOR UPDATE"), {"id": ada})
        holding = threads.submit(api.post, f"/users/{ada}/suspend")
        _until_somebody_waits_for_a_lock(database)
        waiting = [_asking(api, base_url, f"late-{number}") for number in range(20)]
        _until(lambda: parts.turns.statistics().tasks_waiting == 20, "they do not wait")
        for each in waiting[:19]:
            each.close()
        assert api.client.get("/health/live").status_code == 200, "it has seen them go"
        connection.rollback()
        assert holding.result(30).status_code == 200
        assert waiting[19].recv(12) == b"HTTP/1.1 201"
        assert [each["name"] for each in api.get("/organizations").json()["items"]] == ["late-19"]
        waiting[19].close()


def _asking(api: Api, base_url: str, name: str) -> socket.socket:
    """A connection over which an organization of that name was asked for."""
    url, body = httpx.URL(base_url), json.dumps({"name": name})
    head = f"POST {api.url('/organizations')} HTTP/1.1\r\nHost: api\r\nAuthorization: Bearer {api.token}\r\n"
    connection = socket.create_connection((url.host, url.port or 0), timeout=30)
    connection.sendall(f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
    return connection


Act = Callable[[Api], httpx.Response]
ACTS: dict[str, Act] = {
    "create_workflow": lambda api: api.post("/workflows", {"name": "late"}),
    "create_user": lambda api: new_user(api, "late"),
    "create_subscription": lambda api: api.post(
        "/webhook-subscriptions", {"name": "late", "url": "https://hooks.example.org/"}
    ),
    "create_organization": lambda api: api.post("/organizations", {"name": "late"}),
}


@pytest.mark.parametrize("act", ACTS)
def test_authority_taken_away_while_a_request_is_under_way_is_not_used(api: Api, database: Database, act: str) -> None:
    """The revocation commits first, so what the request did must not: whatever it saw when it came in."""
    role = api.realm.role(None, "realm.*", boundary="realm")
    late = api.realm.holder(role)
    answers: list[httpx.Response] = []
    request = threading.Thread(target=lambda: answers.append(ACTS[act](api.by(late))))
    with database.begin() as connection:
        connection.execute(text("SELECT 1 FROM users WHERE id = :id FOR NO KEY UPDATE"), {"id": late})
        connection.execute(text("DELETE FROM role_assignments WHERE user_id = :id"), {"id": late})
        request.start()
        _until_somebody_waits_for_a_lock(database)
    request.join(30)
    problem(answers[0], 403, "forbidden")
    for path in ("/workflows", "/users", "/webhook-subscriptions", "/organizations"):
        assert "late" not in api.get(path, limit=100).text


def _until_somebody_waits_for_a_lock(database: Database) -> None:
    waiting = text(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )
    with database.owner_engine.connect() as connection:

        def somebody_waits() -> bool:
            connection.rollback()
            return bool(connection.execute(waiting).scalar_one())

        _until(somebody_waits, "nobody waits")


def _until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)
