"""Workflows that are deleted: only with no run left to finish, gone for everybody at once, their runs still to be read."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta

import pytest

from db.statements.run_changes import has_unfinished
from engine.core.errors import Refused
from engine.lifecycle import deletion
from engine.lifecycle import runs as by_hand
from engine.lifecycle.retention import HISTORY, clean
from engine.lifecycle.triggers import start_for_events
from engine.lifecycle.worker import Worker
from engine.outbox.dispatch import dispatch
from tests.api_routes import BODIES, ROUTES, Route
from tests.authoring import asked, done, published, rights, shown, staged, started, trail, workflow
from tests.calling import Api, problem
from tests.definitions import definition, event, id_of, schedule, step
from tests.driver import age, drain, outcome, owner, rows, run_of, until, waiting
from tests.everything import nothing
from tests.factories import TestRealm, unique

OF_WORKFLOWS = [route for route in ROUTES if "{workflow_id}" in route.path]


@pytest.fixture
def boss(api: Api, acme: TestRealm) -> Api:
    """The administrator of a realm of the test's own."""
    return api.at(acme)


# when it may go


def leased(boss: Api, worker: Worker, run_id: str) -> None:
    lease = "UPDATE workflow_runs SET lease_owner = 'w', lease_expires_at = :t, due_at = :t WHERE id = :run"
    owner(boss.realm.database, lease.replace(":t", "now() + interval '1 hour'"), run=run_id)


def advanced(boss: Api, worker: Worker, run_id: str) -> None:
    drain(worker, boss.realm)
    assert run_of(boss.realm, run_id).state in ("waiting", "awaiting_approval")


def paused(boss: Api, worker: Worker, run_id: str) -> None:
    done(asked(boss, "disable", run_of(boss.realm, run_id).workflow_id))
    drain(worker, boss.realm)
    assert run_of(boss.realm, run_id).paused


def untouched(boss: Api, worker: Worker, run_id: str) -> None:
    """Nobody has come to it."""


@pytest.mark.parametrize("kind", ["wait", "approval"])
@pytest.mark.parametrize("come_to", [untouched, leased, advanced, paused])
def test_a_workflow_with_an_unfinished_run_is_not_deleted(
    boss: Api, worker: Worker, kind: str, come_to: Callable[[Api, Worker, str], None]
) -> None:
    realm = boss.realm
    members = {"approvers": [realm.admin]} if kind == "approval" else {}
    workflow_id = published(boss, step(kind, **members))
    run_id = started(boss, workflow_id, realm.user())
    come_to(boss, worker, run_id)
    before = (shown(boss, workflow_id), trail(realm, workflow_id))
    problem(asked(boss, "delete", workflow_id), 409, "conflict")
    assert (shown(boss, workflow_id), trail(realm, workflow_id)) == before
    owner(
        realm.database, "UPDATE workflow_runs SET lease_owner = NULL, lease_expires_at = NULL WHERE id = :r", r=run_id
    )
    done(boss.post(f"/workflow-runs/{run_id}/cancel"), 202)
    drain(worker, realm)
    assert outcome(realm, run_id) == ("cancelled", "cancelled")
    done(asked(boss, "delete", workflow_id), 204)


def test_unfinished_runs_of_other_workflows_hold_none_back(boss: Api, worker: Worker) -> None:
    one, two, three = (published(boss, step("wait")) for _ in range(3))
    started(boss, two, boss.realm.user())
    started(boss, three, boss.realm.user())
    done(asked(boss, "disable", three))
    drain(worker, boss.realm)
    done(asked(boss, "delete", one), 204)
    problem(asked(boss, "delete", two), 409, "conflict")


_MANY_RUNS = """
    INSERT INTO workflow_runs (realm_id, id, workflow_id, revision, publisher_id, subject_id, trigger_type, trigger_key, input,
                               input_version, state, due_at, finished_at, paused)
    SELECT :realm, 'wrn_' || CAST(:state AS text) || g, :workflow, 1, :admin, :admin, 'manual', CAST(:state AS text) || g, '{}',
           1, :state, CASE WHEN :state = 'waiting' THEN now() + g * interval '1 hour' END,
           CASE WHEN :state = 'succeeded' THEN now() END, :state = 'running'
    FROM generate_series(1, :count) AS g
"""


def test_to_know_that_no_run_is_unfinished_the_finished_ones_are_not_read(acme: TestRealm) -> None:
    """Nor are those of other workflows that are held; what is due in the realm is, once."""
    workflow_id, other = acme.published(definition(step("wait"))), acme.published(definition(step("wait")))
    for of, state, count in ((workflow_id, "succeeded", 20_000), (other, "waiting", 2_000), (other, "running", 2_000)):
        given = {"realm": acme.id, "admin": acme.admin, "workflow": of, "state": state, "count": count}
        owner(acme.database, _MANY_RUNS, **given)
    counter = "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables WHERE relname = 'workflow_runs'"
    for analyzed in (False, True):
        if analyzed:
            owner(acme.database, "ANALYZE workflow_runs")
        for of, found, most in ((workflow_id, False, 2_000), (other, True, 1)):
            acme.database.engine.dispose()  # a new connection, which counts from nothing
            with acme.database.begin() as connection:
                assert has_unfinished(connection, acme.id, of) is found
                assert connection.exec_driver_sql(counter).scalar_one() <= most


# who may


@pytest.mark.parametrize("verb", ["publish", "disable"])
def test_what_was_ever_published_is_deleted_by_whoever_may_publish_alone(boss: Api, verb: str) -> None:
    writer = boss.by(rights(boss.realm, "realm.workflows.write"))
    publisher = boss.by(rights(boss.realm, "realm.workflows.write", "realm.workflows.publish"))
    workflow_id = published(boss)
    if verb == "disable":
        done(asked(boss, "disable", workflow_id))
    refused = problem(asked(writer, "delete", workflow_id), 403, "forbidden")
    assert refused["detail"] == "This needs the permission realm.workflows.publish."
    assert shown(boss, workflow_id)["id"] == workflow_id
    done(asked(publisher, "delete", workflow_id), 204)


def test_a_draft_is_deleted_by_whoever_may_write(boss: Api) -> None:
    writer = boss.by(rights(boss.realm, "realm.workflows.write"))
    workflow_id = workflow(writer)
    staged(writer, workflow_id)
    done(asked(writer, "delete", workflow_id), 204)
    assert [row.type for row in trail(boss.realm, workflow_id)][-1] == "workflow.deleted"


@pytest.mark.parametrize(("state", "alerts"), [("draft", 0), ("active", 1), ("disabled", 0)])
def test_deleting_what_was_active_raises_an_alert(boss: Api, worker: Worker, state: str, alerts: int) -> None:
    realm = boss.realm
    workflow_id = workflow(boss) if state == "draft" else published(boss)
    if state == "disabled":
        done(asked(boss, "disable", workflow_id))
    before = len(trail(realm, workflow_id))
    done(asked(boss, "delete", workflow_id), 204)
    deleted, *alerted = trail(realm, workflow_id)[before:]
    assert (deleted.type, deleted.category, deleted.actor_id) == ("workflow.deleted", "workflow", realm.admin)
    assert deleted.details == {"state": state}
    assert [(row.type, row.category, row.details) for row in alerted] == [
        ("security.alert", "security", {"reason": "workflow_deleted"})
    ] * alerts
    drain(worker, realm)
    query = "SELECT * FROM outbox_events WHERE realm_id = :realm AND type = 'security.alert' ORDER BY position"
    told = [row for row in rows(realm.database, query, realm=realm.id) if row.payload["reason"] == "workflow_deleted"]
    assert [(row.payload["workflow_id"], row.user_id) for row in told] == [(workflow_id, None)] * alerts
    assert all(row.dispatched_at is not None for row in told)


# from then on


@pytest.fixture(scope="module")
def gone(api: Api) -> str:
    """A workflow that was published twice, and is deleted."""
    workflow_id = published(api)
    done(asked(api, "publish", workflow_id, staged(api, workflow_id)))
    staged(api, workflow_id)
    done(asked(api, "delete", workflow_id), 204)
    return workflow_id


@pytest.mark.parametrize("route", OF_WORKFLOWS, ids=str)
def test_a_deleted_workflow_and_all_below_it_answer_as_one_that_never_was(api: Api, gone: str, route: Route) -> None:
    names = vars(nothing())
    if route.operation == "start_run":
        body = {"subject_id": api.realm.user()}
    elif route.operation == "stage_revision":
        body = {"definition": definition()}
    else:
        body = BODIES[route.operation](nothing()) if route.takes_body else ...  # type: ignore[assignment]
    for number in ("1", "2", "3"):
        paths = [route.path.format(**{**names, "workflow_id": id_, "number": number}) for id_ in (gone, id_of("wfl"))]
        deleted, missing = (api.call(route.method, path, body) for path in paths)
        assert problem(deleted, 404, "not_found") == problem(missing, 404, "not_found")


def test_a_deleted_workflow_is_in_no_list_and_its_name_is_free(boss: Api) -> None:
    name = unique("name")
    first, other = workflow(boss, name=name), workflow(boss)
    problem(boss.post("/workflows", {"name": name}), 409, "conflict")
    done(asked(boss, "delete", first), 204)
    assert [each["id"] for each in done(boss.get("/workflows"))["items"]] == [other]
    second = workflow(boss, name=name)
    done(asked(boss, "delete", second), 204)
    done(boss.patch(f"/workflows/{other}", {"name": name}))


def test_its_finished_runs_stay_to_be_read(boss: Api, worker: Worker) -> None:
    ada = boss.realm.user()
    workflow_id = published(boss, step("suspend_user"))
    run_id = started(boss, workflow_id, ada)
    drain(worker, boss.realm)
    before = done(boss.get(f"/workflow-runs/{run_id}"))
    done(asked(boss, "delete", workflow_id), 204)
    assert done(boss.get(f"/workflow-runs/{run_id}")) == before
    for query in ({"workflow_id": workflow_id}, {"subject_id": ada}):
        assert [run["id"] for run in done(boss.get("/workflow-runs", **query))["items"]] == [run_id]
    problem(boss.post(f"/workflow-runs/{run_id}/cancel"), 409, "conflict")


def test_the_key_of_a_start_gives_its_run_though_the_workflow_is_deleted(boss: Api, worker: Worker) -> None:
    ada, headers = boss.realm.user(), {"Idempotency-Key": unique("key")}
    workflow_id = published(boss)
    start = f"/workflows/{workflow_id}/runs"
    run_id = done(boss.post(start, {"subject_id": ada}, headers=headers), 201)["id"]
    drain(worker, boss.realm)
    done(asked(boss, "delete", workflow_id), 204)
    assert done(boss.post(start, {"subject_id": ada}, headers=headers))["id"] == run_id
    problem(boss.post(start, {"subject_id": ada}), 404, "not_found")


def test_nothing_fires_any_more(boss: Api, worker: Worker) -> None:
    realm = boss.realm
    drain(worker, realm)
    role = realm.role(None, "realm.users.read", boundary="realm")
    slots = schedule("role_holders", "1h", role_id=role, organization_id=..., granted_before=...)
    workflow_id = published(boss, triggers=[event("user.created"), slots])
    ada = realm.user()  # whose event is not dispatched when the workflow goes
    done(asked(boss, "delete", workflow_id), 204)
    drain(worker, realm)
    for table in ("event_triggers", "schedule_triggers", "workflow_runs"):
        assert rows(realm.database, f"SELECT 1 FROM {table} WHERE workflow_id = :id", id=workflow_id) == [], table
    query = "SELECT dispatched_at FROM outbox_events WHERE user_id = :ada"
    assert all(row.dispatched_at is not None for row in rows(realm.database, query, ada=ada))


# history


def test_a_deleted_workflow_goes_when_it_is_old_and_none_of_its_runs_is_left(boss: Api, worker: Worker) -> None:
    realm = boss.realm
    with_a_run, without, young = published(boss, step("end")), published(boss), published(boss)
    run_id = started(boss, with_a_run, realm.user())
    drain(worker, realm)
    for workflow_id in (with_a_run, without, young):
        done(asked(boss, "delete", workflow_id), 204)
    deleted_earlier = "UPDATE workflows SET deleted_at = deleted_at - :by WHERE id = :id"
    for workflow_id, by in ((with_a_run, 1), (without, 1), (young, -1)):
        owner(realm.database, deleted_earlier, by=HISTORY + timedelta(days=by), id=workflow_id)

    def left() -> list[str]:
        found = []
        for table, column in (("workflows", "id"), ("workflow_revisions", "workflow_id")):
            query = f"SELECT {column} AS id FROM {table} WHERE realm_id = :realm"
            found.append(sorted(row.id for row in rows(realm.database, query, realm=realm.id)))
        assert found[0] == found[1]
        return found[0]

    assert clean(realm.database)["workflows"] == 1
    assert left() == sorted([with_a_run, young])
    assert done(boss.get(f"/workflow-runs/{run_id}"))["workflow_id"] == with_a_run
    age(realm, run_id, days=181)
    cleaned = clean(realm.database)
    assert (cleaned["runs"], cleaned["workflows"]) == (1, 1)
    assert left() == [young]
    problem(boss.get(f"/workflow-runs/{run_id}"), 404, "not_found")
    assert trail(realm, with_a_run)[0].type == "workflow.created"  # the audit stays


def test_a_workflow_that_is_not_deleted_is_never_cleaned_away(boss: Api) -> None:
    workflow_id = workflow(boss)
    owner(
        boss.realm.database,
        "UPDATE workflows SET created_at = now() - interval '9 years' WHERE id = :id",
        id=workflow_id,
    )
    clean(boss.realm.database)
    assert shown(boss, workflow_id)["state"] == "draft"


# races


def delete(realm: TestRealm, workflow_id: str, refusals: list[str]) -> None:
    try:
        with realm.database.begin() as connection:
            deletion.delete(connection, realm.cause, workflow_id)
    except Refused as refusal:
        refusals.append(refusal.category)


def test_a_run_that_is_being_started_is_waited_for_and_holds_the_workflow_back(boss: Api) -> None:
    realm = boss.realm
    workflow_id, refusals = published(boss), list[str]()
    deleting = threading.Thread(target=delete, args=(realm, workflow_id, refusals))
    with realm.database.begin() as connection:
        by_hand.start_manual(connection, realm.cause, workflow_id, realm.user())
        deleting.start()
        until(lambda: waiting(realm))
    deleting.join()
    assert refusals == ["conflict"]
    assert shown(boss, workflow_id)["state"] == "active"


def test_a_start_waits_for_a_deletion_and_finds_nothing(boss: Api) -> None:
    realm = boss.realm
    workflow_id, ada, answers = published(boss), realm.user(), list[int]()

    def start() -> None:
        answers.append(boss.post(f"/workflows/{workflow_id}/runs", {"subject_id": ada}).status_code)

    starting = threading.Thread(target=start)
    with realm.database.begin() as connection:
        deletion.delete(connection, realm.cause, workflow_id)
        starting.start()
        until(lambda: waiting(realm))
    starting.join()
    assert answers == [404]


def test_an_event_that_is_dispatched_during_a_deletion_starts_nothing(boss: Api, worker: Worker) -> None:
    realm = boss.realm
    drain(worker, realm)
    workflow_id, refusals = published(boss, triggers=[event("user.created")]), list[str]()
    realm.user()
    dispatching = threading.Thread(target=dispatch, args=(realm.database, start_for_events))
    with realm.database.begin() as connection:
        deletion.delete(connection, realm.cause, workflow_id)
        dispatching.start()
        until(lambda: waiting(realm))
    dispatching.join()
    assert refusals == []
    assert rows(realm.database, "SELECT 1 FROM workflow_runs WHERE workflow_id = :id", id=workflow_id) == []
