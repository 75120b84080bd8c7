"""Rows that somebody else holds: nobody's fault, and no reason for anybody else to wait."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest
from pytest_httpserver import HTTPServer
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from db.session import Database
from db.settings import DatabaseSettings
from engine.core.faults import is_contention, is_outage
from engine.core.settings import WorkerSettings, short_transactions
from engine.directory.authority import authority_of, require_group_ceiling
from engine.directory.commands import groups as by_hand
from engine.directory.facts import Wanted
from engine.directory.load import load_facts
from tests.definitions import definition, step
from tests.driver import attempts_of, drain, outcome, run_of, wake, working
from tests.endpoints import Endpoint
from tests.factories import TestRealm, a_realm


@pytest.fixture
def impatient(database: Database) -> Iterator[Database]:
    """The same database by connections that wait for a lock for a tenth of a second."""
    settings = database.settings.model_copy(update={"lock_timeout": timedelta(seconds=0.1)})
    opened = Database(database.owner_url, database.app_url, settings)
    yield opened
    opened.close()


@pytest.fixture
def acme(database: Database) -> TestRealm:
    return a_realm(database)


@contextmanager
def held(acme: TestRealm, user_id: str) -> Iterator[None]:
    """Somebody holds the user's row, and does nothing."""
    with acme.database.begin() as connection:
        connection.execute(text("SELECT 1 FROM users WHERE id = :id FOR UPDATE"), {"id": user_id})
        yield


def test_a_run_whose_subject_is_held_is_put_off_and_the_others_go_on(acme: TestRealm, impatient: Database) -> None:
    flow = acme.published(definition(step("suspend_user")))
    stuck_user, *others = acme.users(6)
    stuck, _ = acme.run(flow, stuck_user)
    runs = [acme.run(flow, user_id)[0] for user_id in others]
    with working(impatient) as worker:
        with held(acme, stuck_user):
            worker.run_pass()
            assert [outcome(acme, run) for run in runs] == [("succeeded", None)] * 5
            row = run_of(acme, stuck)
            assert (row.state, row.lease_owner, row.interruptions) == ("pending", None, 0)
            assert attempts_of(acme, stuck) == []
        wake(acme, stuck)
        drain(worker, acme)
    assert outcome(acme, stuck) == ("succeeded", None)


def test_an_answer_is_recorded_while_its_subject_is_held(
    acme: TestRealm, impatient: Database, httpserver: HTTPServer
) -> None:
    endpoint = Endpoint(httpserver, acme)
    call = step("call_webhook", subscription_id=endpoint.subscription, timeout_ms=..., retry={"max_attempts": 1})
    flow, user_id = acme.published(definition(call)), acme.user()
    run, _ = acme.run(flow, user_id)
    with working(impatient) as worker:
        worker.run_pass()
        with held(acme, user_id):
            drain(worker, acme)
            assert outcome(acme, run) == ("succeeded", None)


def test_a_statement_that_is_too_slow_is_no_outage(database: Database) -> None:
    with database.begin() as connection:
        connection.execute(text("SET LOCAL statement_timeout = '20ms'"))
        with pytest.raises(DBAPIError) as told:
            connection.execute(text("SELECT pg_sleep(5)"))
        connection.rollback()
    assert not is_outage(told.value)
    assert not is_contention(told.value)


def test_a_session_that_was_cut_for_idling_is_an_outage(database: Database) -> None:
    with database.engine.connect() as connection:
        connection.execute(text("SET LOCAL idle_in_transaction_session_timeout = '20ms'"))
        threading.Event().wait(0.3)
        with pytest.raises(DBAPIError) as told:
            connection.execute(text("SELECT 1"))
    assert is_outage(told.value)


def test_a_workers_transactions_are_shorter_than_its_leases() -> None:
    workers = WorkerSettings(lease_duration=timedelta(seconds=9))
    short = short_transactions(DatabaseSettings(), workers)
    assert short.idle_in_transaction_timeout == timedelta(seconds=3)
    assert short.lock_timeout == timedelta(seconds=1)


def test_two_runs_of_one_batch_do_not_take_the_last_owner_away(acme: TestRealm) -> None:
    sales, editor = acme.organization(), acme.role(None, "org.members.read")
    (owner,) = acme.users(1, sales)
    acme.grant(owner, acme.roles["org-owner"], sales)
    acme.grant(owner, editor, sales)
    less = acme.published(definition(step("remove_role", role_id=editor, scope="organization", organization_id=...)))
    gone = acme.published(definition(step("remove_membership", organization_id=...)))
    first, _ = acme.run(less, owner, sales)
    second, _ = acme.run(gone, owner, sales)
    with working(acme.database) as worker:
        drain(worker, acme)
    assert outcome(acme, first) == ("succeeded", None)
    assert outcome(acme, second) == ("failed", "conflict")


def test_a_group_that_is_relied_upon_gets_no_role_before_the_effect_is_committed(acme: TestRealm) -> None:
    sales, reader = acme.organization(), acme.role(None, "org.members.read")
    team = acme.group(sales)
    given = threading.Event()

    def give() -> None:
        with acme.database.begin() as connection:
            by_hand.give_role(connection, acme.cause, team, reader)
        given.set()

    with acme.database.begin() as connection:
        wanted = Wanted(authority_of={acme.key(acme.admin)}, groups={acme.key(team)})
        facts = load_facts(connection, wanted)
        require_group_ceiling(authority_of(facts, acme.key(acme.admin)), facts, acme.key(team), sales)
        thread = threading.Thread(target=give)
        thread.start()
        assert not given.wait(0.5)
    thread.join(10)
    assert given.is_set()


def test_what_a_group_grants_is_read_after_its_lock_was_waited_for(acme: TestRealm) -> None:
    sales, reader = acme.organization(), acme.role(None, "org.members.read")
    team = acme.group(sales, roles=[reader])
    seen: list[tuple[str, ...]] = []

    def look() -> None:
        with acme.database.begin() as connection:
            seen.append(load_facts(connection, Wanted(groups={acme.key(team)})).groups[acme.key(team)].role_ids)

    with acme.database.begin() as connection:
        by_hand.take_role(connection, acme.cause, team, reader)
        thread = threading.Thread(target=look)
        thread.start()
        thread.join(0.5)
        assert thread.is_alive()
    thread.join(10)
    assert seen == [()]
