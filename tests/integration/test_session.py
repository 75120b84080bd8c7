"""What the application's connections may do, what they bring with them, and how waiting for a NOTIFY behaves."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress

import psycopg
import pytest
from psycopg.types.json import Jsonb
from sqlalchemy import Column, Connection, MetaData, Table, insert, select, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.exc import DBAPIError, OperationalError, ProgrammingError, StatementError

from db.errors import DatabaseUnavailable
from db.migrate import upgrade
from db.roles import APP_ROLE
from db.session import Database
from db.settings import DatabaseSettings
from tests.database import SharedServer, plain

notes = Table("notes", MetaData(), Column("body", JSONB))


@pytest.fixture
def noted(database: Database) -> Database:
    """A database with a table of the owner's, of which the application may read and write the rows."""
    with database.owner_engine.begin() as connection:
        connection.execute(text("CREATE TABLE notes (body jsonb)"))
        connection.execute(text(f"GRANT SELECT, INSERT, UPDATE, DELETE ON notes TO {APP_ROLE}"))
    return database


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, "it did not happen within 10 s"
        time.sleep(0.01)


def role(connection: Connection) -> str:
    return str(connection.scalar(text("SELECT current_user")))


def settings(**values: object) -> DatabaseSettings:
    return DatabaseSettings(**values)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "statement",
    [
        "DROP TABLE notes",
        "ALTER TABLE notes ADD COLUMN more text",
        "TRUNCATE notes",
        "CREATE TABLE mine (id int)",
        "CREATE INDEX ON notes (body)",
        "DROP SCHEMA public CASCADE",
        "CREATE TRIGGER t BEFORE UPDATE ON notes EXECUTE FUNCTION suppress_redundant_updates_trigger()",
        "COMMENT ON TABLE notes IS 'mine'",
        "CREATE SCHEMA other",
        "CREATE ROLE other SUPERUSER",
        "COPY notes TO PROGRAM 'true'",
    ],
)
def test_the_application_cannot_change_what_it_works_on(noted: Database, statement: str) -> None:
    with pytest.raises(ProgrammingError) as refused, noted.begin() as connection:
        connection.execute(text(statement))
    assert isinstance(refused.value.orig, psycopg.errors.InsufficientPrivilege)


def test_reset_and_discard_come_back_to_the_applications_role_and_timeouts(noted: Database) -> None:
    with noted.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        assert role(connection) == APP_ROLE
        for statement in ("RESET ROLE", "SET statement_timeout = 0", "RESET ALL", "DISCARD ALL"):
            connection.execute(text(statement))
        assert role(connection) == APP_ROLE
        assert connection.scalar(text("SHOW statement_timeout")) == "30s"


def test_on_the_embedded_server_there_is_no_other_user_behind_the_application(noted: Database) -> None:
    if noted.app_url == noted.owner_url:
        pytest.skip("the server given has one login for both")
    with noted.begin() as connection:
        connection.execute(text("SET ROLE NONE"))
        assert role(connection) == APP_ROLE
        connection.execute(text("SET SESSION AUTHORIZATION DEFAULT"))
        assert role(connection) == APP_ROLE


def test_one_login_can_serve_both_and_the_application_still_works_as_its_role(noted: Database) -> None:
    shared = Database(noted.owner_url, noted.owner_url, noted.settings)  # type: ignore[arg-type]
    with shared.begin() as connection:
        assert role(connection) == APP_ROLE
        connection.execute(insert(notes).values(body=1))
    with pytest.raises(ProgrammingError, match="must be owner"), shared.begin() as connection:
        connection.execute(text("DROP TABLE notes"))
    shared.close()


def test_a_process_with_the_applications_login_alone_works_but_cannot_migrate(noted: Database) -> None:
    alone = Database.open(settings(app_database_url=plain(noted.app_url)))
    with alone.begin() as connection:
        assert role(connection) == APP_ROLE
    with pytest.raises(DatabaseUnavailable, match="TENURE_DATABASE_URL"):
        upgrade(alone)
    alone.close()


def test_a_connection_brings_its_timeouts_time_zone_and_name(noted: Database) -> None:
    patient = settings(
        database_url=plain(noted.app_url), statement_timeout=0.25, lock_timeout=1, idle_in_transaction_timeout=7
    )
    database = Database.open(patient, application_name="tenure api")
    with database.begin() as connection:
        names = ("TimeZone", "lock_timeout", "idle_in_transaction_session_timeout", "application_name", "search_path")
        shown = [connection.scalar(text(f"SHOW {name}")) for name in names]
    assert shown == ["UTC", "1s", "7s", "tenure api", "public"]
    with pytest.raises(OperationalError, match="statement timeout"), database.begin() as connection:
        connection.execute(text("SELECT pg_sleep(20)"))
    database.close()


def test_options_in_the_operators_url_are_kept_and_do_not_replace_ours(noted: Database) -> None:
    url = noted.app_url.update_query_dict({"options": "-c work_mem=5MB -c statement_timeout=1"})
    database = Database(None, url, noted.settings)
    with database.begin() as connection:
        assert connection.scalar(text("SHOW work_mem")) == "5MB"
        assert connection.scalar(text("SHOW statement_timeout")) == "30s"
    database.close()


def test_a_transaction_commits_at_its_end_and_rolls_back_when_it_raises(noted: Database) -> None:
    with noted.begin() as connection:
        connection.execute(insert(notes).values(body={"kept": 1}))
    with noted.session() as session:
        session.execute(insert(notes).values(body={"kept": 2}))
    for transaction in (noted.begin, noted.session):
        with suppress(ZeroDivisionError), transaction() as either:
            either.execute(insert(notes).values(body={"lost": 1}))
            raise ZeroDivisionError
    with noted.begin() as connection:
        assert connection.scalars(select(notes.c.body)).all() == [{"kept": 1}, {"kept": 2}]


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_number_that_is_not_json_is_refused_before_it_is_sent(noted: Database, number: float) -> None:
    with noted.begin() as connection:
        with pytest.raises((StatementError, ValueError), match="not JSON compliant"):
            connection.execute(insert(notes).values(body={"n": number}))
        driver = connection.connection.driver_connection
        assert isinstance(driver, psycopg.Connection)
        with pytest.raises(ValueError, match="not JSON compliant"):
            driver.execute("SELECT %s", [Jsonb({"n": number})])


def test_text_reaches_json_as_it_is(noted: Database) -> None:
    with noted.begin() as connection:
        connection.execute(insert(notes).values(body={"name": "Zoë 💡"}))
        assert connection.scalar(text("SELECT body ->> 'name' FROM notes")) == "Zoë 💡"


def test_after_its_connections_were_cut_the_pool_works_again(noted: Database) -> None:
    connections = [noted.engine.connect() for _ in range(3)]
    for connection in connections:
        connection.close()
    cut_off(noted)
    with pytest.raises(DBAPIError), noted.begin() as connection:
        connection.execute(text("SELECT 1"))
    for _ in range(3):
        with noted.begin() as connection:
            assert connection.scalar(text("SELECT 1")) == 1


def cut_off(database: Database) -> int:
    """Terminate every connection to this database but the one that does it; how many there were."""
    with database.owner_engine.begin() as connection:
        statement = text(
            "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        return int(connection.scalar(statement) or 0)


def notify(database: Database, channel: str, times: int = 1) -> None:
    with database.begin() as connection:
        for number in range(times):
            connection.execute(
                text("SELECT pg_notify(:channel, :payload)"), {"channel": channel, "payload": str(number)}
            )


def test_a_waiting_listener_returns_when_notified(database: Database) -> None:
    with database.listen("due") as due:
        sender = threading.Timer(0.1, notify, [database, "due"])
        sender.start()
        began = time.monotonic()
        assert due.wait(20)
        assert time.monotonic() - began < 5
        sender.join()


def test_what_is_notified_before_the_wait_is_not_missed_and_taken_all_at_once(database: Database) -> None:
    with database.listen("due") as due:
        notify(database, "due", times=5)
        notify(database, "other")
        assert due.wait(5)
        assert not due.wait(0.05)
        assert not due.wait(0)


def test_a_listener_hears_its_own_channel_only(database: Database) -> None:
    with database.listen("due") as due:
        notify(database, "other")
        assert not due.wait(0.2)


def test_another_thread_can_wake_a_listener(database: Database) -> None:
    with database.listen("due") as due:
        waker = threading.Timer(0.1, due.wake)
        waker.start()
        began = time.monotonic()
        assert not due.wait(20)
        assert time.monotonic() - began < 5
        waker.join()
        due.wake()
        due.wake()
        assert not due.wait(20), "woken before it waits, it does not wait"
        assert time.monotonic() - began < 5
        notify(database, "due")
        assert due.wait(5), "a wake does not spoil what comes after it"


def test_a_listener_whose_connection_was_cut_listens_again(database: Database) -> None:
    with database.listen("due") as due:
        assert cut_off(database) == 1
        assert due.wait(5), "back, and something may have been missed"
        assert not due.wait(0.05)
        notify(database, "due")
        assert due.wait(5)


def test_a_listener_waits_out_an_outage(postgres: SharedServer, database: Database) -> None:
    name = str(database.app_url.database)
    with database.listen("due") as due:
        postgres.execute("ALTER DATABASE {} ALLOW_CONNECTIONS false", name)
        cut_off_from_outside(postgres, name)
        began = time.monotonic()
        assert not due.wait(0.3)
        assert 0.3 <= time.monotonic() - began < 5, "it waits its time instead of spinning or raising"
        waker = threading.Timer(0.1, due.wake)
        waker.start()
        assert not due.wait(20), "and can be woken"
        waker.join()
        postgres.execute("ALTER DATABASE {} ALLOW_CONNECTIONS true", name)
        eventually(lambda: due.wait(0.5))
        notify(database, "due")
        assert due.wait(5)


def cut_off_from_outside(postgres: SharedServer, name: str) -> None:
    with psycopg.connect(plain(postgres.owner_url), autocommit=True) as connection:
        connection.execute("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = %s", [name])
