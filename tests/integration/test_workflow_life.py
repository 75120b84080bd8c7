"""Workflows that are disabled and enabled again: nothing fires meanwhile, no run is lost, and nothing is done twice."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Connection
from werkzeug import Response

from db.session import Database
from db.statements.releases import PAGE
from db.statements.run_changes import lock_run
from db.statements.runs import lock_workflows
from db.statements.workflows import lock_workflow
from engine.core.errors import Refused
from engine.core.trail import Cause
from engine.lifecycle import activation, deletion, runs
from engine.lifecycle.schedules import fire_due
from engine.lifecycle.states import WORKFLOW
from engine.lifecycle.worker import Worker
from tests.api_routes import ROUTES, Route, body_of
from tests.authoring import asked, done, published, rights, shown, staged, started, status_of, trail, workflow
from tests.calling import Api, paths, problem
from tests.definitions import Json, definition, event, schedule, step
from tests.driver import (
    AnyRow,
    age,
    attempts_of,
    drain,
    many_runs,
    outcome,
    owner,
    rows,
    run_of,
    trail_of,
    trigger,
    until,
    waiting,
    working,
)
from tests.endpoints import Endpoint
from tests.everything import nothing
from tests.factories import TestRealm

HOUR = timedelta(hours=1)


@pytest.fixture
def boss(api: Api, acme: TestRealm) -> Api:
    """The administrator of a realm of the test's own."""
    return api.at(acme)


# the state table

VERBS = ("publish", "roll_back", "disable", "enable", "delete")
NUMBER = {"publish": 3, "roll_back": 1}
MOVES = {(source, verb): target for source, verb, target in WORKFLOW.rows}
RESTS = {("active", "enable"), ("disabled", "disable")}
"""What is so already, and is answered as done."""
WAY: dict[str, tuple[str, ...]] = {
    "draft": (),
    "active": (),
    "disabled": ("disable",),
    "deleted": ("delete",),
}


def a_workflow(boss: Api, state: str) -> str:
    """A workflow in that state. Of its three revisions the first was published before, unless it is a draft."""
    workflow_id = workflow(boss)
    for number in (1, 2):
        staged(boss, workflow_id)
        if state != "draft":
            done(asked(boss, "publish", workflow_id, number))
    staged(boss, workflow_id)
    for verb in WAY[state]:
        assert asked(boss, verb, workflow_id).status_code < 300
    assert state_of(boss.realm, workflow_id).state == state
    return workflow_id


def state_of(realm: TestRealm, workflow_id: str) -> AnyRow:
    (row,) = rows(
        realm.database, "SELECT * FROM workflows WHERE realm_id = :r AND id = :id", r=realm.id, id=workflow_id
    )
    return row


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("state", WORKFLOW.states)
def test_a_workflow_moves_as_its_state_table_says_and_in_no_other_way(boss: Api, state: str, verb: str) -> None:
    workflow_id = a_workflow(boss, state)
    before = (state_of(boss.realm, workflow_id), trail(boss.realm, workflow_id))
    answer = asked(boss, verb, workflow_id, NUMBER.get(verb, 0))
    target = MOVES.get((state, verb))
    if target is not None:
        assert answer.status_code == (204 if verb == "delete" else 200), answer.text
        assert state_of(boss.realm, workflow_id).state == target
        assert len(trail(boss.realm, workflow_id)) > len(before[1])
        return
    if state == "deleted":
        problem(answer, 404, "not_found")
    elif (state, verb) in RESTS:
        assert done(answer)["state"] == state
    else:
        problem(answer, 409, "conflict")
    assert (state_of(boss.realm, workflow_id), trail(boss.realm, workflow_id)) == before


def test_the_table_knows_the_verbs_of_the_api_and_no_other() -> None:
    assert {verb for _, verb, _ in WORKFLOW.rows} == set(VERBS)
    assert set(WAY) == set(WORKFLOW.states)


# what is told


def test_disabling_is_audited_and_raises_an_alert(boss: Api, worker: Worker) -> None:
    realm = boss.realm
    workflow_id = published(boss, triggers=[event("user.created")])
    answer = boss.call("POST", f"/workflows/{workflow_id}/disable", headers={"X-Request-Id": "stop-1"})
    assert done(answer)["state"] == "disabled"
    disabled, alert = trail(realm, workflow_id)[-2:]
    assert (disabled.type, disabled.category, disabled.details) == ("workflow.disabled", "workflow", {})
    assert (alert.type, alert.category, alert.target_type) == ("security.alert", "security", "workflow")
    assert alert.details == {"reason": "workflow_disabled"}
    for row in (disabled, alert):
        assert (row.actor_type, row.actor_id, row.request_id) == ("user", realm.admin, "stop-1")
    (told,) = rows(
        realm.database, "SELECT * FROM outbox_events WHERE type = 'security.alert' AND realm_id = :r", r=realm.id
    )
    assert (told.user_id, told.organization_id, told.caused_by_workflow) == (None, None, None)
    assert told.payload == {"reason": "workflow_disabled", "workflow_id": workflow_id}
    drain(worker, realm)
    (told,) = rows(
        realm.database, "SELECT * FROM outbox_events WHERE type = 'security.alert' AND realm_id = :r", r=realm.id
    )
    assert (told.dispatched_at is not None, told.attempts) == (True, 0)


def test_enabling_is_audited_with_what_goes_on_and_raises_no_alert(boss: Api, worker: Worker) -> None:
    workflow_id = published(boss, step("suspend_user"))
    for subject in boss.realm.users(3):
        started(boss, workflow_id, subject)
    done(asked(boss, "disable", workflow_id))
    drain(worker, boss.realm)
    before = trail(boss.realm, workflow_id)
    done(asked(boss, "enable", workflow_id))
    (enabled,) = trail(boss.realm, workflow_id)[len(before) :]
    assert (enabled.type, enabled.category, enabled.actor_id) == ("workflow.enabled", "workflow", boss.realm.admin)
    assert enabled.details == {"revision": 1, "publisher_id": boss.realm.admin}


# nothing fires


def test_a_disabled_workflow_is_started_by_nothing(boss: Api, worker: Worker) -> None:
    realm = boss.realm
    role = realm.role(None, "realm.users.read", boundary="realm")
    realm.holder(role)
    drain(worker, realm)
    triggers = [hourly(role), event("user.created"), {"type": "manual"}]
    workflow_id = published(boss, step("end"), triggers=triggers)
    done(asked(boss, "disable", workflow_id))
    ada = realm.user()
    problem(boss.post(f"/workflows/{workflow_id}/runs", {"subject_id": ada}), 409, "conflict")
    pass_time(realm, workflow_id, HOUR)
    fire_due(realm.database)
    drain(worker, realm)
    assert runs_of(realm, workflow_id) == []
    done(asked(boss, "enable", workflow_id))
    drain(worker, realm)
    assert runs_of(realm, workflow_id) == []  # what happened meanwhile has passed
    bob = realm.user()
    started(boss, workflow_id, ada)
    drain(worker, realm)
    assert {run.subject_id for run in runs_of(realm, workflow_id)} == {ada, bob}


def test_publishing_and_going_back_never_enable_a_disabled_workflow(boss: Api, worker: Worker) -> None:
    workflow_id = published(boss, triggers=[event("user.created")])
    done(asked(boss, "disable", workflow_id))
    number = staged(boss, workflow_id, triggers=[event("user.created")])
    done(asked(boss, "publish", workflow_id, number))
    assert done(asked(boss, "roll_back", workflow_id, 1))["state"] == "disabled"
    boss.realm.user()
    drain(worker, boss.realm)
    assert runs_of(boss.realm, workflow_id) == []
    assert [status_of(boss, workflow_id, each) for each in (1, number)] == ["published", "superseded"]


def runs_of(realm: TestRealm, workflow_id: str) -> list[AnyRow]:
    return rows(realm.database, "SELECT * FROM workflow_runs WHERE workflow_id = :id ORDER BY id", id=workflow_id)


# schedules


def hourly(role: str) -> Json:
    """A trigger that is due every hour for the holders of a role of the realm."""
    return schedule("role_holders", "1h", role_id=role, organization_id=..., granted_before=...)


def pass_time(realm: TestRealm, workflow_id: str, by: timedelta) -> None:
    """The workflow was published so much earlier, and all its slots are so much nearer."""
    for statement in (
        "UPDATE workflows SET first_published_at = first_published_at - :by WHERE id = :id",
        "UPDATE schedule_triggers SET next_slot_at = next_slot_at - :by, slot_at = slot_at - :by WHERE workflow_id = :id",
    ):
        owner(realm.database, statement, by=by, id=workflow_id)
    earlier = "UPDATE workflow_runs SET trigger_key = trigger_key || ' earlier' WHERE workflow_id = :id"
    owner(realm.database, earlier, id=workflow_id)


def slots_of(realm: TestRealm, workflow_id: str) -> list[AnyRow]:
    return rows(
        realm.database, "SELECT * FROM schedule_triggers WHERE workflow_id = :id ORDER BY ordinal", id=workflow_id
    )


def fired(realm: TestRealm, workflow_id: str) -> list[tuple[int, bool]]:
    """How many runs each slot that has ended started, and whether it was complete."""
    told = [row.details for row in trail(realm, workflow_id) if row.type == "workflow.schedule.fired"]
    return [(details["started"], details["complete"]) for details in told]


def test_a_slot_that_is_being_filled_ends_incomplete_and_is_not_resumed(boss: Api) -> None:
    realm = boss.realm
    role = realm.role(None, "realm.users.read", boundary="realm")
    members = realm.users(501)
    owner(
        realm.database,
        "INSERT INTO role_assignments (realm_id, id, role_id, user_id, scope)"
        " SELECT :realm, 'ras_' || substr(user_id, 5), :role, user_id, 'realm' FROM unnest(CAST(:users AS text[])) AS user_id",
        realm=realm.id,
        role=role,
        users=members,
    )
    workflow_id = published(boss, step("end"), triggers=[hourly(role)])
    pass_time(realm, workflow_id, HOUR)
    fire_due(realm.database, between=iter([True, False]).__next__)
    (open_slot,) = slots_of(realm, workflow_id)
    assert (open_slot.slot_started, open_slot.slot_cursor) == (500, sorted(members)[499])
    done(asked(boss, "disable", workflow_id))
    assert fired(realm, workflow_id) == [(500, False)]
    (ended,) = slots_of(realm, workflow_id)
    assert (ended.slot_at, ended.slot_cursor, ended.slot_started, ended.slot_missed) == (None, None, 0, 0)
    done(asked(boss, "enable", workflow_id))
    fire_due(realm.database)
    assert len(runs_of(realm, workflow_id)) == 500
    pass_time(realm, workflow_id, HOUR)
    fire_due(realm.database)
    assert fired(realm, workflow_id) == [(500, False), (501, True)]


def test_enabling_goes_on_with_the_next_slot_and_catches_up_none(boss: Api) -> None:
    realm = boss.realm
    role = realm.role(None, "realm.users.read", boundary="realm")
    realm.holder(role)
    every = {**hourly(role), "every": "7h"}
    workflow_id = published(boss, step("end"), triggers=[hourly(role), every])
    done(asked(boss, "disable", workflow_id))
    pass_time(realm, workflow_id, 30.5 * HOUR)
    done(asked(boss, "enable", workflow_id))
    anchor = state_of(realm, workflow_id).first_published_at
    assert [slot.next_slot_at - anchor for slot in slots_of(realm, workflow_id)] == [31 * HOUR, 35 * HOUR]
    fire_due(realm.database)
    assert runs_of(realm, workflow_id) == []
    pass_time(realm, workflow_id, HOUR)
    fire_due(realm.database)
    (slot,) = [row for row in trail(realm, workflow_id) if row.type == "workflow.schedule.fired"]
    assert (slot.details["started"], slot.details["missed"]) == (1, 0)


def test_enabling_at_once_moves_no_slot(boss: Api) -> None:
    role = boss.realm.role(None, "realm.users.read", boundary="realm")
    workflow_id = published(boss, step("end"), triggers=[hourly(role)])
    before = slots_of(boss.realm, workflow_id)
    for verb in ("disable", "enable"):
        done(asked(boss, verb, workflow_id))
    assert slots_of(boss.realm, workflow_id) == before


# runs in flight


def held(boss: Api, run_id: str) -> Json:
    """The run as the API shows it, held back: never due, in nobody's hands."""
    run = done(boss.get(f"/workflow-runs/{run_id}"))
    assert (run["paused"], run["due_at"], run["finished_at"]) == (True, None, None)
    assert run_of(boss.realm, run_id).lease_owner is None
    return run


def test_a_run_goes_on_where_it_was_however_often_its_workflow_was_disabled(
    boss: Api, endpoint: Endpoint, module_database: Database
) -> None:
    """Disabled before every single step, held, and enabled again: each effect is there once."""
    realm = boss.realm
    role = realm.role(None, "org.members.read")
    (ada,) = realm.users(1)
    sales = realm.organization(None, ada)
    team = realm.group(sales)
    steps = [
        step("assign_role", id="role", role_id=role, organization_id=...),
        step("add_to_group", id="group", group_id=team, organization_id=...),
        step("call_webhook", id="call", subscription_id=endpoint.subscription, timeout_ms=...),
        step("notify", id="tell", recipients=...),
        step("suspend_user", id="suspend"),
    ]
    workflow_id = published(boss, *steps)
    run_id = started(boss, workflow_id, ada, sales)
    held_at: list[int] = []
    with working(module_database, max_transitions=1) as worker:

        def went_on() -> bool:
            worker.run_pass()
            run = run_of(realm, run_id)
            return run.finished_at is not None or run.step_index > held_at[-1]

        while not is_over(realm, run_id):
            done(asked(boss, "disable", workflow_id))
            drain(worker, realm)
            held_at.append(held(boss, run_id)["step_index"])
            done(asked(boss, "enable", workflow_id))
            until(went_on)
    assert held_at in ([0, 1, 2, 3, 4], [0, 1, 2, 4])  # a pass may record an answer and take the next step too
    assert outcome(realm, run_id) == ("succeeded", None)
    assert [(row.step_id, row.attempt, row.state) for row in attempts_of(realm, run_id)] == [
        (each["id"], 1, "succeeded") for each in steps
    ]
    assert len(endpoint.calls) == 1
    counted = Counter(trail_of(realm, run_id, ""))
    for type_ in ("role.assignment.granted", "group.membership.added", "user.suspended", "workflow.run.succeeded"):
        assert counted[type_] == 1, type_
    assert counted["workflow.step.succeeded"] == len(steps)
    assert len(rows(realm.database, "SELECT 1 FROM messages WHERE realm_id = :r", r=realm.id)) == 1


def is_over(realm: TestRealm, run_id: str) -> bool:
    return run_of(realm, run_id).finished_at is not None


def test_a_wait_that_ended_while_the_workflow_was_disabled_is_over_once_it_is_enabled(
    boss: Api, worker: Worker
) -> None:
    ada = boss.realm.user()
    workflow_id = published(boss, step("wait"), step("suspend_user", id="b"))
    run_id = started(boss, workflow_id, ada)
    drain(worker, boss.realm)
    done(asked(boss, "disable", workflow_id))
    assert done(boss.get(f"/workflow-runs/{run_id}"))["paused"] is False  # nobody has come to it yet
    age(boss.realm, run_id, hours=1)
    drain(worker, boss.realm)
    assert held(boss, run_id)["state"] == "waiting"
    done(asked(boss, "enable", workflow_id))
    drain(worker, boss.realm)
    assert outcome(boss.realm, run_id) == ("succeeded", None)
    assert [(row.step_id, row.attempt) for row in attempts_of(boss.realm, run_id)] == [("a", 1), ("b", 1)]


def test_enabling_wakes_no_run_before_its_time_and_none_of_another_workflow(boss: Api, worker: Worker) -> None:
    realm = boss.realm
    one, two = published(boss, step("wait")), published(boss, step("suspend_user"))
    waiting_run = started(boss, one, realm.user())
    drain(worker, realm)
    other = started(boss, two, realm.user())
    done(asked(boss, "disable", two))
    drain(worker, realm)
    before = run_of(realm, waiting_run)
    for verb in ("disable", "enable"):
        done(asked(boss, verb, one))
    assert run_of(realm, waiting_run) == before
    held(boss, other)


@pytest.mark.parametrize("is_held", [True, False])
def test_a_run_of_a_disabled_workflow_is_cancelled_and_undoes_what_it_did(
    boss: Api, worker: Worker, is_held: bool
) -> None:
    realm = boss.realm
    role = realm.role(None, "org.members.read")
    (ada,) = realm.users(1)
    sales = realm.organization(None, ada)
    grant = step("assign_role", role_id=role, organization_id=...)
    workflow_id = published(boss, grant, step("wait", id="w"))
    run_id = started(boss, workflow_id, ada, sales)
    drain(worker, realm)
    done(asked(boss, "disable", workflow_id))
    if is_held:
        age(realm, run_id, hours=1)
        drain(worker, realm)
        held(boss, run_id)
    done(boss.post(f"/workflow-runs/{run_id}/cancel"), 202)
    drain(worker, realm)
    assert outcome(realm, run_id) == ("cancelled", "cancelled")
    assert rows(realm.database, "SELECT 1 FROM role_assignments WHERE user_id = :ada", ada=ada) == []
    assert shown(boss, workflow_id)["state"] == "disabled"


def test_a_compensation_that_waits_for_its_next_try_goes_on_though_the_workflow_was_disabled(
    boss: Api, worker: Worker, endpoint: Endpoint
) -> None:
    realm = boss.realm
    endpoint.compensate = [Response(status=503)]
    call = step("call_webhook", id="call", subscription_id=endpoint.subscription, timeout_ms=..., compensate=True)
    workflow_id = published(boss, call, step("notify", id="fail", recipients="organization_owners"))
    run_id = started(boss, workflow_id, realm.user())
    drain(worker, realm)
    assert run_of(realm, run_id).state == "compensating"
    done(asked(boss, "disable", workflow_id))
    age(realm, run_id, hours=1)
    drain(worker, realm)
    assert outcome(realm, run_id) == ("compensated", "organization_required")
    assert len(endpoint.of("compensate")) == 2


# the guard on enabling (FAULTS.md, 17)


def beyond(realm: TestRealm, kind: str) -> tuple[Json, str]:
    """A step that an administrator of workflows alone could not do by hand, and the code of the refusal."""
    if kind == "suspend_user":
        return step("suspend_user", id="b"), "forbidden"
    role = realm.role(None, "realm.users.write", boundary="realm")
    given = step("assign_role", id="b", role_id=role, scope="realm", organization_id=..., expires_in=...)
    return given, "grant_ceiling_exceeded"


@pytest.mark.parametrize("kind", ["suspend_user", "assign_role"])
def test_whoever_enables_must_be_able_to_do_each_step_by_hand(boss: Api, worker: Worker, kind: str) -> None:
    realm = boss.realm
    strong, code = beyond(realm, kind)
    weaker = boss.by(rights(realm, "realm.workflows.publish", "realm.workflows.write", "realm.roles.assign"))
    workflow_id = published(boss, step("wait"), strong)
    run_id = started(boss, workflow_id, realm.user())
    done(asked(weaker, "disable", workflow_id))  # taking away needs no authority over the steps
    drain(worker, realm)
    before = (state_of(realm, workflow_id), trail(realm, workflow_id))
    refused = problem(asked(weaker, "enable", workflow_id), 403, code)
    assert refused["errors"][0]["path"] == "definition.steps[1]"
    assert (state_of(realm, workflow_id), trail(realm, workflow_id)) == before
    held(boss, run_id)


def test_the_publisher_stays_the_one_who_answers_whoever_enables(boss: Api, worker: Worker) -> None:
    realm = boss.realm
    publisher = realm.holder(realm.roles["realm-admin"])
    workflow_id = published(boss.by(publisher), step("suspend_user"))
    done(asked(boss, "disable", workflow_id))
    assert done(asked(boss, "enable", workflow_id))["publisher_id"] == publisher
    run_id = started(boss, workflow_id, realm.user())
    realm.revoke(publisher, realm.roles["realm-admin"])
    drain(worker, realm)
    assert outcome(realm, run_id) == ("failed", "publisher_lacks_authority")


def test_a_workflow_that_names_what_is_gone_is_not_enabled(boss: Api) -> None:
    ada = boss.realm.user()
    workflow_id = published(boss, step("approval", approvers=[ada]))
    done(asked(boss, "disable", workflow_id))
    done(boss.post(f"/users/{ada}/suspend"))
    assert paths(asked(boss, "enable", workflow_id)) == ["definition.steps[0].approvers[0]"]
    assert shown(boss, workflow_id)["state"] == "disabled"
    done(asked(boss, "publish", workflow_id, staged(boss, workflow_id)))  # the revision in force is what counts
    done(asked(boss, "enable", workflow_id))


MACHINES = [("service_principal", "spn_01jbh0ybgaravg3xcq0zdp2eg0"), ("system", None)]


@pytest.mark.parametrize(("kind", "id_"), MACHINES)
def test_whoever_is_no_user_disables_enables_and_deletes_nothing(boss: Api, kind: str, id_: str | None) -> None:
    machine = Cause(boss.realm.id, kind, id_)
    verbs: dict[str, Callable[[Connection, Cause, str], Any]] = {
        "active": activation.disable,
        "disabled": activation.enable,
        "draft": deletion.delete,
    }
    for state, verb in verbs.items():
        workflow_id = a_workflow(boss, state)
        with pytest.raises(Refused) as refusal, boss.realm.database.begin() as connection:
            verb(connection, machine, workflow_id)
        assert refusal.value.category == "forbidden"
        assert state_of(boss.realm, workflow_id).state == state


# workflows of plugins

OF_WORKFLOWS = [route for route in ROUTES if "{workflow_id}" in route.path]
CHANGES = [route for route in OF_WORKFLOWS if route.method != "GET" and route.operation != "start_run"]


@pytest.mark.parametrize("route", CHANGES, ids=str)
def test_a_workflow_of_a_plugin_is_changed_through_it_alone(boss: Api, route: Route) -> None:
    workflow_id = published(boss)
    owner(boss.realm.database, "UPDATE workflows SET plugin_id = 'plg_1' WHERE id = :id", id=workflow_id)
    path = route.path.format(workflow_id=workflow_id, number=1)
    # A definition that names nothing: the plugin is told before anything else.
    body = {"definition": definition()} if route.operation == "stage_revision" else body_of(route, nothing())
    refused = problem(boss.call(route.method, path, body), 409, "conflict")
    assert refused["detail"] == "This workflow belongs to a plugin and is changed through it."
    assert shown(boss, workflow_id)["plugin_id"] == "plg_1"
    started(boss, workflow_id, boss.realm.user())  # and runs as any other


def test_every_change_of_a_workflow_is_among_those() -> None:
    verbs = {"change_workflow", "stage_revision", "approve_revision", "reject_revision", "publish_revision"}
    verbs |= {"roll_back_workflow", "disable_workflow", "enable_workflow", "delete_workflow"}
    assert {route.operation for route in CHANGES} == verbs


# races


def enable(realm: TestRealm, workflow_id: str) -> None:
    with realm.database.begin() as connection:
        activation.enable(connection, realm.cause, workflow_id)


def test_a_run_that_is_being_held_at_the_moment_its_workflow_is_enabled_is_not_lost(boss: Api, worker: Worker) -> None:
    """The worker has seen the workflow disabled and has written it down, but not committed."""
    realm = boss.realm
    workflow_id = published(boss, step("suspend_user"))
    run_id = started(boss, workflow_id, realm.user())
    done(asked(boss, "disable", workflow_id))
    until(lambda: worker.run_pass().idle)
    owner(realm.database, "UPDATE workflow_runs SET paused = false, due_at = now() WHERE id = :run", run=run_id)
    passing = threading.Thread(target=worker.run_pass)
    enabling = threading.Thread(target=enable, args=(realm, workflow_id))
    hold = "PERFORM pg_advisory_xact_lock(4711); RETURN NULL;"
    with trigger(realm.database, "AFTER UPDATE ON workflow_runs", hold, "NEW.paused"):
        with realm.database.owner_engine.begin() as blocker:
            blocker.exec_driver_sql("SELECT pg_advisory_xact_lock(4711)")
            passing.start()
            until(lambda: waiting(realm, 1))
            enabling.start()
            until(lambda: waiting(realm, 2))
        passing.join()
        enabling.join()
    row = run_of(realm, run_id)
    assert (row.paused, row.due_at is not None) == (False, True)
    drain(worker, realm)
    assert outcome(realm, run_id) == ("succeeded", None)


def test_a_worker_that_waits_for_a_workflow_that_is_being_enabled_goes_on_with_its_run(
    boss: Api, worker: Worker
) -> None:
    """It has locked the run before, against the order in which enabling locks: neither ever waits for the other's."""
    realm = boss.realm
    workflow_id = published(boss, step("suspend_user"))
    paused, in_hand = (started(boss, workflow_id, user) for user in realm.users(2))
    done(asked(boss, "disable", workflow_id))
    drain(worker, realm)
    owner(realm.database, "UPDATE workflow_runs SET paused = false, due_at = now() WHERE id = :run", run=in_hand)
    passing = threading.Thread(target=worker.run_pass)
    with realm.database.begin() as connection:
        lock_workflow(connection, realm.id, workflow_id)
        passing.start()
        until(lambda: waiting(realm))
        connection.exec_driver_sql("SET LOCAL lock_timeout = '1s'")
        activation.enable(connection, realm.cause, workflow_id)
    passing.join()
    assert not run_of(realm, in_hand).paused
    drain(worker, realm)
    assert [outcome(realm, run) for run in (paused, in_hand)] == [("succeeded", None)] * 2


def test_a_run_that_is_cancelled_while_its_workflow_is_enabled_ends_cancelled(boss: Api, worker: Worker) -> None:
    realm = boss.realm
    workflow_id = published(boss, step("suspend_user"))
    run_id = started(boss, workflow_id, realm.user())
    done(asked(boss, "disable", workflow_id))
    drain(worker, realm)
    with realm.database.begin() as connection:
        runs.cancel(connection, realm.cause, run_id)
        enable(realm, workflow_id)  # which waits for no run, or a worker might wait for it in turn
    assert shown(boss, workflow_id)["state"] == "active"
    drain(worker, realm)
    assert outcome(realm, run_id) == ("cancelled", "cancelled")
    assert [row.type for row in trail(realm, run_of(realm, run_id).subject_id)].count("user.suspended") == 0


def test_a_workflow_that_is_switched_all_the_time_loses_no_run_and_does_nothing_twice(
    boss: Api, module_database: Database
) -> None:
    realm = boss.realm
    subjects = realm.users(60)
    steps = [step("notify", id=f"tell{index}", recipients=...) for index in range(4)]
    workflow_id = published(boss, *steps, step("suspend_user", id="last"))
    raced = many_runs(realm, workflow_id, subjects)
    over = threading.Event()

    def work() -> None:
        with working(module_database, batch_size=7, max_transitions=2) as worker:
            while not over.is_set():
                worker.run_pass()

    workers = [threading.Thread(target=work) for _ in range(2)]
    for each in workers:
        each.start()
    try:
        for _ in range(15):
            for verb in ("disable", "enable"):
                done(asked(boss, verb, workflow_id))
        until(lambda: all(is_over(realm, run_id) for run_id in raced), within=60)
    finally:
        over.set()
        for each in workers:
            each.join()
    for run_id, subject in zip(raced, (run_of(realm, run_id).subject_id for run_id in raced), strict=True):
        assert outcome(realm, run_id) == ("succeeded", None)
        assert [row.step_id for row in attempts_of(realm, run_id)] == [*(each["id"] for each in steps), "last"]
        assert [row.type for row in trail(realm, subject)].count("user.suspended") == 1
    assert len(rows(realm.database, "SELECT 1 FROM messages WHERE realm_id = :r", r=realm.id)) == 4 * len(raced)


def test_whoever_relies_on_a_workflow_waits_behind_the_one_who_is_about_to_change_it(boss: Api) -> None:
    """Else workers that are always at it would let nobody disable it."""
    realm = boss.realm
    workflow_id = published(boss)
    passed: list[str] = []

    def change() -> None:
        with realm.database.begin() as connection:
            activation.disable(connection, realm.cause, workflow_id)
            passed.append("disabled")

    def rely() -> None:
        with realm.database.begin() as connection:
            lock_workflows(connection, [(realm.id, workflow_id)])
            passed.append("relied upon")

    threads = [threading.Thread(target=change), threading.Thread(target=rely)]
    with realm.database.begin() as connection:
        lock_workflows(connection, [(realm.id, workflow_id)])
        for count, thread in enumerate(threads, 1):
            thread.start()
            until(lambda count=count: waiting(realm, count))  # type: ignore[misc]
    for thread in threads:
        thread.join()
    assert passed == ["disabled", "relied upon"]


HELD = "UPDATE workflow_runs SET paused = true, due_at = NULL WHERE realm_id = :realm AND workflow_id = :workflow"


def test_runs_that_are_held_in_large_numbers_go_on_a_page_at_a_time_and_wait_for_nobody(boss: Api) -> None:
    """Not in the transaction that enables: it would hold the workflow, and with it the workers, for as long as that takes."""
    realm = boss.realm
    workflow_id = published(boss, step("suspend_user"))
    raced = many_runs(realm, workflow_id, realm.users(PAGE + 20))
    done(asked(boss, "disable", workflow_id))
    owner(realm.database, HELD, realm=realm.id, workflow=workflow_id)
    with realm.database.begin() as connection:  # somebody is at one of them at this moment
        lock_run(connection, realm.id, raced[0])
        done(asked(boss, "enable", workflow_id))
        assert held_runs(realm, workflow_id) == 20
        activation.release_held(realm.database)
        assert held_runs(realm, workflow_id) == 1
    activation.release_held(realm.database)
    assert held_runs(realm, workflow_id) == 0
    query = "SELECT 1 FROM workflows WHERE realm_id = :realm AND releasing"
    assert rows(realm.database, query, realm=realm.id) == []


def test_what_is_held_again_stays_held(boss: Api) -> None:
    realm = boss.realm
    workflow_id = published(boss, step("suspend_user"))
    many_runs(realm, workflow_id, realm.users(3))
    for verb in ("disable", "enable", "disable"):
        done(asked(boss, verb, workflow_id))
    owner(realm.database, HELD, realm=realm.id, workflow=workflow_id)
    activation.release_held(realm.database)
    assert held_runs(realm, workflow_id) == 3


def held_runs(realm: TestRealm, workflow_id: str) -> int:
    query = "SELECT 1 FROM workflow_runs WHERE realm_id = :realm AND workflow_id = :workflow AND paused"
    return len(rows(realm.database, query, realm=realm.id, workflow=workflow_id))
