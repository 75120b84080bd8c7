"""The outbox as administrators see it, and an event that was set aside, dispatched again once what it failed for is mended."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from engine.core import ids
from engine.core.ids import Prefix
from engine.lifecycle.worker import Worker
from engine.outbox.dispatch import MAX_ATTEMPTS
from tests.calling import Api, problem
from tests.definitions import definition, event, step
from tests.driver import constraint, drain, owner, working
from tests.factories import a_realm


def listed(api: Api, **query: Any) -> list[str]:
    """Ids of the events on the first page."""
    return [item["id"] for item in api.get("/outbox-events", **query).json()["items"]]


@pytest.fixture
def alone(api: Api) -> Api:
    """The administrator of a realm of the test's own."""
    return api.at(a_realm(api.realm.database))


def fail_until_set_aside(api: Api, worker: Worker, event_id: str) -> None:
    """Ten failures, one after the other, as soon as each may be."""
    for failures in range(1, MAX_ATTEMPTS + 1):
        drain(worker, api.realm)
        shown = api.get(f"/outbox-events/{event_id}").json()
        assert (shown["attempts"], shown["state"]) == (failures, "waiting" if failures < MAX_ATTEMPTS else "set_aside")
        owner(api.realm.database, "UPDATE outbox_events SET due_at = clock_timestamp() WHERE id = :id", id=event_id)


@contextmanager
def no_runs_of(api: Api, workflow_id: str) -> Iterator[None]:
    """Matching an event to that workflow raises: the database takes no run of it."""
    with constraint(api.realm.database, "workflow_runs", f"workflow_id <> '{workflow_id}'"):
        yield


def listening(api: Api) -> str:
    return api.realm.published(definition(step("end"), triggers=[event("user.suspended")]))


def test_the_newest_event_comes_first_and_shows_what_became_of_it(alone: Api, worker: Worker) -> None:
    ada = alone.realm.user()
    drain(worker, alone.realm)
    moved = alone.realm.event("user.updated", ada, changed_fields=["email"])
    shown = alone.get("/outbox-events").json()["items"]
    assert [item["id"] for item in shown] == sorted((item["id"] for item in shown), reverse=True)
    assert shown[0] == alone.get(f"/outbox-events/{moved}").json()
    waiting = shown[0]
    assert (waiting["state"], waiting["dispatched_at"], waiting["set_aside_at"]) == ("waiting", None, None)
    assert waiting["payload"] == {"changed_fields": ["email"]}
    assert (waiting["event_version"], waiting["attempts"], waiting["last_error"]) == (1, 0, None)
    assert {item["state"] for item in shown[1:]} == {"dispatched"}
    assert all(item["dispatched_at"] >= item["created_at"] for item in shown[1:])


def test_what_a_run_caused_says_which(alone: Api, worker: Worker) -> None:
    ada = alone.realm.user()
    workflow = alone.realm.published(definition(step("suspend_user")))
    run, _ = alone.realm.run(workflow, ada)
    drain(worker, alone.realm)
    (caused,) = alone.get("/outbox-events", type="user.suspended").json()["items"]
    assert (caused["correlation_id"], caused["caused_by_workflow"], caused["user_id"]) == (run, workflow, ada)


def test_events_are_found_by_type_user_and_state(alone: Api, worker: Worker) -> None:
    ada, bob = alone.realm.user(), alone.realm.user()
    drain(worker, alone.realm)
    first = alone.realm.event("user.suspended", ada)
    second = alone.realm.event("user.suspended", bob)
    third = alone.realm.event("user.reactivated", ada)
    assert listed(alone, type="user.suspended") == [second, first]
    assert listed(alone, type="role.assignment.expired") == []
    assert listed(alone, user_id=ada)[:2] == [third, first]
    assert bob not in alone.get("/outbox-events", user_id=ada).text
    assert listed(alone, user_id=ada, type="user.suspended") == [first]
    assert listed(alone, state="waiting") == [third, second, first]
    assert listed(alone, state="set_aside") == []
    owner(alone.realm.database, "UPDATE outbox_events SET set_aside_at = now() WHERE id = :id", id=second)
    drain(worker, alone.realm)
    assert listed(alone, state="set_aside") == [second]
    assert listed(alone, state="waiting") == []
    assert set(listed(alone, state="dispatched")) >= {first, third}
    assert second not in listed(alone, state="dispatched")
    problem(alone.get("/outbox-events", type="user.signed_in"), 422, "validation_failed")
    problem(alone.get("/outbox-events", state="lost"), 422, "validation_failed")
    problem(alone.get("/outbox-events", correlation_id=first), 422, "validation_failed")


def test_pages_hold_every_event_once(alone: Api) -> None:
    alone.realm.users(7)
    found, cursor = [], None
    while True:
        page = alone.get("/outbox-events", limit=3, **({} if cursor is None else {"cursor": cursor})).json()
        found += [item["id"] for item in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert found == listed(alone, limit=100)
    assert len(found) == len(set(found)) > 7


# dispatch again


def test_an_event_that_was_set_aside_is_dispatched_again_once_it_is_mended(alone: Api, worker: Worker) -> None:
    workflow, ada = listening(alone), alone.realm.user()
    drain(worker, alone.realm)
    with no_runs_of(alone, workflow):
        stuck = alone.realm.event("user.suspended", ada)
        fail_until_set_aside(alone, worker, stuck)
        shown = alone.get(f"/outbox-events/{stuck}").json()
        assert shown["last_error"] == "CheckViolation 23514"
        assert shown["set_aside_at"] is not None
        drain(worker, alone.realm)
        assert alone.get("/workflow-runs").json()["items"] == []
    again = alone.post(f"/outbox-events/{stuck}/dispatch")
    assert again.status_code == 202, again.text
    assert (again.json()["state"], again.json()["attempts"], again.json()["set_aside_at"]) == ("waiting", 0, None)
    drain(worker, alone.realm)
    assert alone.get(f"/outbox-events/{stuck}").json()["state"] == "dispatched"
    (run,) = alone.get("/workflow-runs").json()["items"]
    assert (run["event_id"], run["subject_id"], run["state"]) == (stuck, ada, "succeeded")
    trail = alone.get("/audit-events", target_id=stuck).json()["items"]
    assert [audited["type"] for audited in trail] == [
        "event.dispatch_requested",
        "workflow.trigger.suppressed",
        "event.received",
    ]
    assert (trail[0]["actor_id"], trail[0]["request_id"]) == (alone.realm.admin, again.headers["x-request-id"])
    assert trail[0]["details"] == {
        "event_type": "user.suspended",
        "attempts": 10,
        "last_error": "CheckViolation 23514",
    }


def test_an_event_that_fails_all_the_same_is_set_aside_again(alone: Api, worker: Worker) -> None:
    workflow, ada = listening(alone), alone.realm.user()
    drain(worker, alone.realm)
    with no_runs_of(alone, workflow):
        stuck = alone.realm.event("user.suspended", ada)
        for times in (1, 2):
            fail_until_set_aside(alone, worker, stuck)
            told = alone.get("/audit-events", target_id=stuck).json()["items"]
            assert [each["type"] for each in told].count("workflow.trigger.suppressed") == times
            assert alone.post(f"/outbox-events/{stuck}/dispatch").status_code == 202


def test_an_event_that_waits_or_was_dispatched_is_not_dispatched_again(alone: Api, worker: Worker) -> None:
    ada = alone.realm.user()
    moved = alone.realm.event("user.suspended", ada)
    before = alone.get(f"/outbox-events/{moved}").json()
    problem(alone.post(f"/outbox-events/{moved}/dispatch"), 409, "conflict")
    assert alone.get(f"/outbox-events/{moved}").json() == before
    drain(worker, alone.realm)
    problem(alone.post(f"/outbox-events/{moved}/dispatch"), 409, "conflict")
    problem(alone.post(f"/outbox-events/{ids.new(Prefix.OUTBOX_EVENT)}/dispatch"), 404, "not_found")
    assert [each["type"] for each in alone.get("/audit-events", target_id=moved).json()["items"]] == ["event.received"]


def test_it_is_asked_for_once_and_by_a_user(alone: Api) -> None:
    stuck = alone.realm.event("user.suspended", alone.realm.user())
    owner(alone.realm.database, "UPDATE outbox_events SET set_aside_at = now(), attempts = 10 WHERE id = :id", id=stuck)
    machine = alone.by(alone.realm.principal(alone.realm.role(None, "*", boundary="realm")))
    problem(machine.post(f"/outbox-events/{stuck}/dispatch"), 403, "forbidden")
    reader = alone.by(alone.realm.holder(alone.realm.roles["realm-auditor"]))
    assert reader.get(f"/outbox-events/{stuck}").json()["state"] == "set_aside"
    problem(reader.post(f"/outbox-events/{stuck}/dispatch"), 403, "forbidden")
    assert alone.post(f"/outbox-events/{stuck}/dispatch").status_code == 202
    problem(alone.post(f"/outbox-events/{stuck}/dispatch"), 409, "conflict")


def test_it_ends_the_wait_of_an_idle_worker(alone: Api) -> None:
    stuck = alone.realm.event("user.suspended", alone.realm.user())
    owner(alone.realm.database, "UPDATE outbox_events SET set_aside_at = now() WHERE id = :id", id=stuck)
    with working(alone.realm.database, poll_interval=60) as worker:
        drain(worker, alone.realm)
        asking = threading.Timer(0.2, alone.post, (f"/outbox-events/{stuck}/dispatch",))
        asking.start()
        began = time.monotonic()
        worker.wait(threading.Event())
        assert time.monotonic() - began < 30
        asking.join()
        drain(worker, alone.realm)
    assert alone.get(f"/outbox-events/{stuck}").json()["state"] == "dispatched"
