"""What a process tells Prometheus: its own figures whatever happens, those of the database while it is there, and no names."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import anyio
import httpx
import pytest
from fastapi import FastAPI
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import event as sql_event
from sqlalchemy import text

from api import figures
from api.app import create_app
from api.figures import MEANINGS, UNFINISHED, Figures
from api.parts import Parts
from api.settings import ApiSettings
from db.session import Database
from db.settings import DatabaseSettings
from db.tables.runs import FINISHED_STATES, RUN_STATES
from tests.calling import ISSUER, PATIENT, Api, caller, problem, serve
from tests.definitions import definition, event, schedule, step
from tests.driver import drain, many_runs, owner, until, working
from tests.factories import KEYRING, TestRealm, a_realm

FIGURES = [f"tenure_{name}" for name in MEANINGS]


@dataclass(frozen=True)
class Scraper:
    """An application of its own, and who asks it for its figures."""

    app: FastAPI
    client: httpx.Client

    def over(self, database: Database, settings: ApiSettings = PATIENT) -> None:
        """From now on it serves that database."""
        self.app.state.parts = Parts.open(settings, database, KEYRING, ISSUER)

    def text(self) -> str:
        answer = self.client.get("/metrics")
        assert answer.status_code == 200, answer.text
        return answer.text

    def cached(self) -> dict[str, float]:
        """Each sample by its name with its labels, as they stand in the text."""
        return {
            sample.name + "".join(f"|{value}" for _, value in sorted(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(self.text())
            for sample in family.samples
        }

    def fresh(self) -> dict[str, float]:
        """The same, and the database is asked anew."""
        self.app.state.metrics.figures = Figures()
        return self.cached()

    def figures(self) -> dict[str, float]:
        """The figures of the database that are not zero."""
        found = self.fresh()
        assert found["tenure_database_up"] == 1
        return {name.removeprefix("tenure_"): found[name] for name in FIGURES if found[name]}


@pytest.fixture(scope="module")
def served() -> Iterator[Scraper]:
    app = create_app()
    with httpx.Client(base_url=serve(app), timeout=30) as client:
        yield Scraper(app, client)


@pytest.fixture
def scraper(served: Scraper, database: Database) -> Scraper:
    served.over(database)
    return served


@pytest.fixture
def acme(database: Database) -> TestRealm:
    realm = a_realm(database)
    with working(database) as worker:
        drain(worker, realm)
    return realm


@pytest.fixture
def api(scraper: Scraper, acme: TestRealm) -> Api:
    return caller(scraper.client, acme)


# what the database says


def test_of_a_quiet_realm_every_figure_is_there_and_zero(scraper: Scraper, acme: TestRealm) -> None:
    found = scraper.fresh()
    assert found["tenure_database_up"] == 1
    assert {name: found[name] for name in FIGURES} == dict.fromkeys(FIGURES, 0)
    by_state = {name: value for name, value in found.items() if name.startswith("tenure_runs_unfinished")}
    assert by_state == {f"tenure_runs_unfinished|{state}": 0 for state in UNFINISHED}


def test_the_states_that_are_told_are_those_that_are_no_end() -> None:
    assert set(UNFINISHED) == set(RUN_STATES) - set(FINISHED_STATES)


def test_runs_that_are_due_are_counted_over_all_realms_and_the_longest_wait_told(
    scraper: Scraper, acme: TestRealm
) -> None:
    other = a_realm(acme.database)
    (mine,) = many_runs(acme, acme.published(definition(step("end"))), acme.users(1))
    many_runs(other, other.published(definition(step("end"))), other.users(2))
    moved = "UPDATE workflow_runs SET due_at = now() + :by WHERE id = :id"
    owner(acme.database, moved, id=mine, by=-timedelta(hours=2))
    found = scraper.figures()
    assert found["runs_due"] == 3
    assert 7200 <= found["runs_oldest_due_seconds"] < 7300
    owner(acme.database, moved, id=mine, by=timedelta(hours=2))
    found = scraper.figures()
    assert found["runs_due"] == 2
    assert found["runs_oldest_due_seconds"] < 100


def test_runs_are_counted_by_state_paused_ones_too(scraper: Scraper, acme: TestRealm) -> None:
    waits = acme.published(definition(step("wait"), step("end", id="b")))
    asks = acme.published(definition(step("approval", approvers=[acme.user()]), step("end", id="b")))
    waiting = many_runs(acme, waits, acme.users(3))
    many_runs(acme, asks, acme.users(2))
    many_runs(acme, acme.published(definition(step("end"))), acme.users(4))
    with working(acme.database) as worker:
        drain(worker, acme)
    paused = "UPDATE workflow_runs SET paused = true, due_at = NULL WHERE id = :id"
    owner(acme.database, paused, id=waiting[0])
    found = scraper.fresh()
    assert [found[f"tenure_runs_unfinished|{state}"] for state in UNFINISHED] == [0, 0, 3, 2, 0]
    assert found["tenure_approvals_pending"] == 2
    assert found["tenure_runs_due"] == 0


def test_a_lease_is_expired_when_its_worker_is_gone(scraper: Scraper, acme: TestRealm) -> None:
    first, second = many_runs(acme, acme.published(definition(step("end"))), acme.users(2))
    leased = """UPDATE workflow_runs SET lease_owner = 'gone', lease_expires_at = now() + :by, due_at = now() + :by
                WHERE id = :id"""
    owner(acme.database, leased, id=first, by=timedelta(minutes=1))
    owner(acme.database, leased, id=second, by=-timedelta(minutes=1))
    found = scraper.figures()
    assert (found["leases_expired"], found["runs_due"]) == (1, 1)


def test_what_waits_in_the_outbox_and_what_was_set_aside(scraper: Scraper, acme: TestRealm) -> None:
    ada = acme.user()
    (first,) = [acme.event("user.suspended", ada)]
    stuck = acme.event("user.reactivated", ada)
    owner(acme.database, "UPDATE outbox_events SET set_aside_at = now() WHERE id = :id", id=stuck)
    owner(acme.database, "UPDATE outbox_events SET due_at = now() - interval '1 h' WHERE id = :id", id=first)
    found = scraper.figures()
    waiting = 2  # the user's creation, and the first event
    assert (found["outbox_waiting"], found["outbox_set_aside"]) == (waiting, 1)
    assert 3600 <= found["outbox_oldest_waiting_seconds"] < 3700
    owner(acme.database, "UPDATE outbox_events SET due_at = now() + interval '1 h' WHERE dispatched_at IS NULL")
    found = scraper.figures()
    assert found["outbox_waiting"] == waiting, "one that failed waits too"
    assert "outbox_oldest_waiting_seconds" not in found


def test_notices_that_were_not_sent(scraper: Scraper, acme: TestRealm) -> None:
    workflow = acme.published(definition(step("notify", id="tell", recipients=...)))
    many_runs(acme, workflow, acme.users(3))
    with working(acme.database) as worker:  # without a relay
        drain(worker, acme)
    assert scraper.figures()["messages_queued"] == 3
    sent = (
        "UPDATE messages SET state = 'sent', due_at = NULL, ended_at = now() WHERE id = (SELECT min(id) FROM messages)"
    )
    owner(acme.database, sent)
    assert scraper.figures()["messages_queued"] == 2


def test_schedules_that_are_late_and_slots_that_are_being_filled(scraper: Scraper, acme: TestRealm) -> None:
    role = acme.role(None, "realm.users.read", boundary="realm")
    hourly = definition(
        triggers=[schedule("role_holders", "1h", role_id=role, organization_id=..., granted_before=...)]
    )
    late, other = acme.published(hourly), acme.published(hourly)
    assert "schedules_lateness_seconds" not in scraper.figures()
    moved = "UPDATE schedule_triggers SET next_slot_at = now() - make_interval(hours => :by) WHERE workflow_id = :id"
    owner(acme.database, moved, id=late, by=1)
    owner(acme.database, moved, id=other, by=5)
    assert 5 * 3600 <= scraper.figures()["schedules_lateness_seconds"] < 5 * 3600 + 100
    owner(acme.database, "UPDATE workflows SET state = 'disabled' WHERE id = :id", id=other)
    assert 3600 <= scraper.figures()["schedules_lateness_seconds"] < 3700, "a disabled workflow is not late"
    owner(acme.database, "UPDATE schedule_triggers SET slot_at = now() WHERE workflow_id = :id", id=late)
    assert scraper.figures()["slots_being_filled"] == 1


def test_subscriptions_that_are_disabled(scraper: Scraper, acme: TestRealm) -> None:
    for state in ("active", "disabled", "disabled", "paused", "deleted"):
        acme.subscription(state=state)
    assert scraper.figures() == {"subscriptions_disabled": 2}


def test_scrapes_in_a_row_or_at_once_ask_the_database_once(scraper: Scraper, acme: TestRealm) -> None:
    asked: list[str] = []
    engine = acme.database.engine
    sql_event.listen(engine, "before_cursor_execute", lambda *given: asked.append(given[2]))
    before = scraper.fresh()
    once = len(asked)
    assert once == 3
    many_runs(acme, acme.published(definition(step("end"))), acme.users(1))
    asked.clear()
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda _: scraper.cached(), range(16)))
    assert asked == []
    assert {each["tenure_runs_due"] for each in found} == {before["tenure_runs_due"]} == {0}
    scraper.app.state.metrics.figures = Figures()
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda _: scraper.cached(), range(16)))
    assert len(asked) == once
    assert {each["tenure_runs_due"] for each in found} == {1}


def test_a_reading_grows_old(scraper: Scraper, acme: TestRealm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "FRESH", 0.05)
    assert scraper.fresh()["tenure_runs_due"] == 0
    many_runs(acme, acme.published(definition(step("end"))), acme.users(1))
    until(lambda: scraper.cached()["tenure_runs_due"] == 1)


# what the process says


def test_requests_are_counted_by_route_method_and_class_of_status(scraper: Scraper, api: Api) -> None:
    def counted(route: str, method: str, status: str) -> float:
        return scraper.cached().get(f"tenure_api_requests_total|{method}|{route}|{status}", 0)

    cases: list[tuple[tuple[str, str, str], Any]] = [
        (("/users", "GET", "2xx"), lambda: api.get("/users")),
        (("/users/{user_id}", "GET", "2xx"), lambda: api.get(f"/users/{api.realm.admin}")),
        (("/users/{user_id}", "GET", "4xx"), lambda: api.get("/users/usr_nobody")),
        (("/users", "POST", "4xx"), lambda: api.post("/users", {})),
        (("/users", "GET", "4xx"), lambda: api.with_token(None).get("/users")),
        (("/health/live", "GET", "2xx"), lambda: api.client.get("/health/live")),
        (("none", "GET", "4xx"), lambda: api.client.get("/nowhere/mark-7f3a9")),
        (("none", "other", "4xx"), lambda: api.client.request("MARK", "/nowhere")),
        (("none", "POST", "4xx"), lambda: api.post("/users", content=b"x" * 2**21)),
    ]
    for labels, request in cases:
        before = counted(*labels)
        request()
        request()
        assert counted(*labels) == before + 2, labels
    assert "mark" not in scraper.text().lower()


def test_how_long_requests_take_is_counted(scraper: Scraper, api: Api) -> None:
    before = scraper.cached()
    api.get("/users")
    after = scraper.cached()
    for name in ("tenure_api_request_seconds_count|GET|/users", "tenure_api_request_seconds_bucket|+Inf|GET|/users"):
        assert after[name] == before.get(name, 0) + 1
    assert after["tenure_api_request_seconds_sum|GET|/users"] > 0


def test_callers_who_are_held_up_are_counted(scraper: Scraper, api: Api) -> None:
    scraper.over(api.realm.database, ApiSettings(invalid_tokens_per_minute=2))
    before = scraper.cached()["tenure_api_held_up_total"]
    statuses = [api.with_token("x").get("/users").status_code for _ in range(5)]
    assert statuses == [401, 401, 429, 429, 429]
    assert scraper.cached()["tenure_api_held_up_total"] == before + 3


def test_no_name_shows_and_no_label_grows_with_what_is_sent(scraper: Scraper, api: Api) -> None:
    flow = api.realm.published(definition(step("end"), triggers=[event("user.suspended")]), "Hush")
    for path in (f"/workflows/{flow}", "/workflow-runs", f"/users/{api.realm.admin}", "/audit-events"):
        api.get(path)
    api.realm.event("user.suspended", api.realm.user())
    told = scraper.text()
    for name in (api.realm.id, api.realm.admin, flow, "Hush", "rlm_", "usr_", "wfl_", "wrn_", "obx_"):
        assert name not in told, name
    lines = len(told.splitlines())
    for number in range(20):
        api.client.get(f"/nowhere/{number}")
        api.client.request(f"MARK{number}", f"/nowhere/{number}")
        api.get(f"/users/{number}")
    assert len(scraper.text().splitlines()) <= lines + 30, (
        "the few labels that were not there before, not one a request"
    )


def test_the_process_itself_is_measured_once(scraper: Scraper, acme: TestRealm) -> None:
    told = scraper.text()
    assert told.count("# TYPE process_cpu_seconds_total counter") == 1
    assert told.count("# TYPE tenure_database_up gauge") == 1


def test_connections_in_use_and_those_who_wait_for_one(served: Scraper, database: Database) -> None:
    small = Database(
        database.owner_url,
        database.app_url,
        database.settings.model_copy(update={"pool_size": 2, "pool_overflow": 0}),
    )
    served.over(small)
    api = caller(served.client, a_realm(database))
    found = served.fresh()
    assert [found[f"tenure_api_{name}"] for name in ("pool_size", "pool_in_use", "turns_waiting")] == [2, 0, 0]
    ada = api.realm.user()
    with ThreadPoolExecutor(5) as threads, database.begin() as connection:
        connection.execute(text("SELECT 1 FROM users WHERE id = :id FOR UPDATE"), {"id": ada})
        answers = [threads.submit(api.post, f"/users/{ada}/suspend") for _ in range(5)]
        until(lambda: served.cached()["tenure_api_turns_waiting"] == 3)
        assert served.cached()["tenure_api_pool_in_use"] == 2
        connection.rollback()
        assert {answer.result().status_code for answer in answers} == {200}
    small.close()


# when the database is away


def only_the_process(found: dict[str, float]) -> bool:
    """Whether the database's figures are missing and the process's are there."""
    assert "tenure_api_requests_total|GET|/metrics|2xx" in found
    assert "tenure_api_pool_size" in found
    if found["tenure_database_up"]:
        return False
    assert not [name for name in found if name in FIGURES or name.startswith("tenure_runs_unfinished")]
    return True


def test_while_the_database_is_away_the_process_goes_on_telling(scraper: Scraper, database: Database) -> None:
    scraper.fresh()
    nowhere = database.app_url.set(host="127.0.0.1", port=1)
    settings = DatabaseSettings(data_dir=database.settings.data_dir, connect_timeout=timedelta(seconds=2))
    away = Database(None, nowhere, settings)
    scraper.over(away)
    assert only_the_process(scraper.fresh())
    assert only_the_process(scraper.cached())
    scraper.over(database)
    assert scraper.cached()["tenure_database_up"] == 1


def test_a_database_without_tables_is_no_error(served: Scraper, empty_database: Database) -> None:
    served.over(empty_database)
    assert only_the_process(served.fresh())


def test_a_database_that_does_not_answer_in_time_is_not_waited_for(served: Scraper, database: Database) -> None:
    """Somebody has locked a table whole. What waits for it here is ended by the database, long before a caller gives up."""
    patience = {"lock_timeout": timedelta(minutes=5), "statement_timeout": timedelta(minutes=5)}
    slow = Database(database.owner_url, database.app_url, database.settings.model_copy(update=patience))
    served.over(slow)
    with database.owner_engine.begin() as connection:
        connection.execute(text("LOCK TABLE messages IN ACCESS EXCLUSIVE MODE"))
        assert only_the_process(served.fresh())
    assert served.fresh()["tenure_database_up"] == 1
    slow.close()


def test_a_scrape_takes_its_turn_and_does_not_wait_for_ever(
    scraper: Scraper, acme: TestRealm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figures, "TURN_WITHIN", 0.1)
    scraper.app.state.parts.turns.total_tokens = 1
    taken, free = threading.Event(), threading.Event()

    async def hold() -> None:
        """Somebody has the only connection."""
        async with scraper.app.state.parts.turns:
            taken.set()
            await anyio.to_thread.run_sync(free.wait)

    @scraper.app.get("/hold", include_in_schema=False)
    async def holding() -> None:
        await hold()

    with ThreadPoolExecutor(1) as threads:
        held = threads.submit(scraper.client.get, "/hold")
        assert taken.wait(20)
        assert only_the_process(scraper.fresh())
        free.set()
        held.result()
    assert scraper.fresh()["tenure_database_up"] == 1


def test_an_operator_may_switch_it_off(database: Database) -> None:
    app = create_app(settings=ApiSettings(metrics=False))
    app.state.parts = Parts.open(PATIENT, database, KEYRING, ISSUER)
    with httpx.Client(base_url=serve(app)) as client:
        problem(client.get("/metrics"), 404, "not_found")
        assert client.get("/health/live").status_code == 200


def test_it_is_the_plain_text_format_and_nobody_needs_a_token(scraper: Scraper, acme: TestRealm) -> None:
    answer = scraper.client.get("/metrics", headers={"Accept": "application/openmetrics-text;version=1.0.0"})
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert answer.headers["x-request-id"]
    problem(scraper.client.post("/metrics"), 405, "method_not_allowed")
