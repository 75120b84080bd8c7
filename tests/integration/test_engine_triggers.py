"""What starts a run: events through the outbox, once each, and people, within what they may do."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from db.session import Database
from db.tables import OutboxEvent, table
from engine.core import ids
from engine.core.errors import Refused
from engine.core.failpoints import arm
from engine.core.trail import Cause
from engine.lifecycle import revisions, runs
from engine.lifecycle.definition import parse
from engine.lifecycle.triggers import start_for_events
from engine.lifecycle.worker import Worker
from engine.outbox.dispatch import dispatch
from tests.definitions import Json, definition, event, step
from tests.driver import AnyRow, audit_of, drain, outcome, owner, rows, run_of, until, waiting, working
from tests.factories import TestRealm, a_realm


def listening(*event_types: str, steps: list[Json] | None = None, **members: Any) -> Json:
    """A definition that starts for these events and only ends, unless it has other steps."""
    return definition(*(steps or [step("end")]), triggers=[event(*event_types, **members)])


def runs_of(acme: TestRealm, workflow_id: str) -> list[AnyRow]:
    query = "SELECT * FROM workflow_runs WHERE realm_id = :realm AND workflow_id = :workflow ORDER BY created_at"
    return rows(acme.database, query, realm=acme.id, workflow=workflow_id)


def suppressed(acme: TestRealm) -> list[AnyRow]:
    query = (
        "SELECT * FROM audit_events WHERE realm_id = :realm AND type = 'workflow.trigger.suppressed' ORDER BY position"
    )
    return rows(acme.database, query, realm=acme.id)


def an_event(acme: TestRealm, type_: str, user_id: str | None, organization_id: str | None = None) -> str:
    """An event as an outside directory reports it."""
    event_id = ids.new(ids.Prefix.OUTBOX_EVENT)
    values: Json = {
        "realm_id": acme.id,
        "id": event_id,
        "type": type_,
        "user_id": user_id,
        "organization_id": organization_id,
        "payload": {},
    }
    with acme.database.begin() as connection:
        connection.execute(table(OutboxEvent).insert().values(values))
    return event_id


# events


def test_an_event_starts_a_run_for_its_user_with_what_it_is_about(acme: TestRealm, worker: Worker) -> None:
    sales = acme.organization()
    workflow = acme.published(listening("organization.membership.added"))
    (ada,) = acme.users(1, sales)
    drain(worker, acme)
    (run,) = runs_of(acme, workflow)
    assert (run.subject_id, run.organization_id, run.publisher_id) == (ada, sales, acme.admin)
    assert (run.trigger_type, run.event_type) == ("event", "organization.membership.added")
    assert run.trigger_key == f"event:{run.event_id}"
    assert (run.revision, run.depth, run.starter_id, run.input_version) == (1, 0, None, 1)
    assert run.input == {
        "user_id": ada,
        "organization_id": sales,
        "event_id": run.event_id,
        "event_type": "organization.membership.added",
    }
    began = audit_of(acme, run.id)[0]
    assert (began.type, began.actor_id, began.details["trigger"]) == ("workflow.run.started", acme.admin, "event")


def test_an_event_starts_one_run_of_a_workflow_however_often_it_is_dispatched(acme: TestRealm, worker: Worker) -> None:
    both = [event("user.created"), event("user.created", "user.suspended")]
    workflow = acme.published(definition(step("end"), triggers=both))
    other = acme.published(listening("user.created"))
    acme.user()
    drain(worker, acme)
    owner(acme.database, "UPDATE outbox_events SET dispatched_at = NULL WHERE realm_id = :realm", realm=acme.id)
    drain(worker, acme)
    created = "SELECT 1 FROM outbox_events WHERE realm_id = :realm AND type = 'user.created'"
    events = len(rows(acme.database, created, realm=acme.id))
    assert events > 1
    for each in (workflow, other):
        assert len(runs_of(acme, each)) == len({run.event_id for run in runs_of(acme, each)}) == events


def test_an_event_of_another_organization_starts_nothing(acme: TestRealm, worker: Worker) -> None:
    here, elsewhere = acme.organization(), acme.organization()
    workflow = acme.published(listening("organization.membership.added", "user.created", organization_id=here))
    acme.users(1, elsewhere)
    (ada,) = acme.users(1, here)  # created in no organization: that event does not count either
    drain(worker, acme)
    assert [(run.subject_id, run.event_type) for run in runs_of(acme, workflow)] == [
        (ada, "organization.membership.added")
    ]


def test_an_event_of_another_realm_starts_nothing(acme: TestRealm, worker: Worker) -> None:
    workflow = acme.published(listening("user.created"))
    drain(worker, acme)
    before = len(runs_of(acme, workflow))
    other = a_realm(acme.database)
    drain(worker, other)
    assert len(runs_of(acme, workflow)) == before


@pytest.mark.parametrize("state", ["draft", "disabled"])
def test_a_workflow_that_is_not_active_starts_nothing(acme: TestRealm, worker: Worker, state: str) -> None:
    drain(worker, acme)
    if state == "draft":
        workflow = acme.workflow()
        acme.revision(workflow, listening("user.created"))
    else:
        workflow = acme.published(listening("user.created"))
        owner(acme.database, "UPDATE workflows SET state = 'disabled' WHERE id = :id", id=workflow)
    acme.user()
    drain(worker, acme)
    assert runs_of(acme, workflow) == []


def test_only_the_revision_that_is_published_now_is_listened_to(acme: TestRealm, worker: Worker) -> None:
    drain(worker, acme)
    workflow = acme.published(listening("user.created"))
    acme.user()
    drain(worker, acme)
    number = acme.revision(workflow, listening("user.suspended"))
    with acme.database.begin() as connection:
        revisions.publish(connection, acme.cause, workflow, number)
    acme.user(state="suspended")
    drain(worker, acme)
    assert [(run.revision, run.event_type) for run in runs_of(acme, workflow)] == [
        (1, "user.created"),
        (2, "user.suspended"),
    ]


def test_an_event_about_a_deleted_user_or_about_nobody_starts_nothing(acme: TestRealm, worker: Worker) -> None:
    drain(worker, acme)
    workflow = acme.published(listening("user.created"))
    acme.user(state="deleted")
    nobody = an_event(acme, "user.created", None)
    drain(worker, acme)
    assert runs_of(acme, workflow) == []
    (event_,) = rows(acme.database, "SELECT dispatched_at FROM outbox_events WHERE id = :id", id=nobody)
    assert event_.dispatched_at is not None


def test_an_event_that_commits_late_is_not_passed_over(acme: TestRealm, worker: Worker) -> None:
    workflow = acme.published(listening("user.suspended"))
    ada, bob = acme.user(), acme.user()
    values = {"realm_id": acme.id, "type": "user.suspended", "payload": {}}
    with acme.database.begin() as connection:
        late = values | {"id": ids.new(ids.Prefix.OUTBOX_EVENT), "user_id": ada}
        connection.execute(table(OutboxEvent).insert().values(late))
        an_event(acme, "user.suspended", bob)
        drain(worker, acme)
        assert [run.subject_id for run in runs_of(acme, workflow)] == [bob]
    drain(worker, acme)
    assert [run.subject_id for run in runs_of(acme, workflow)] == [bob, ada]


def test_two_dispatchers_at_once_start_every_run_once(acme: TestRealm) -> None:
    workflow = acme.published(listening("organization.membership.added"))
    members = acme.users(300, acme.organization())
    barrier = threading.Barrier(3)

    def dispatch_all() -> None:
        barrier.wait()
        while dispatch(acme.database, start_for_events).events:
            pass

    threads = [threading.Thread(target=dispatch_all) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(run.subject_id for run in runs_of(acme, workflow)) == sorted(members)


@pytest.mark.parametrize("place", ["dispatch.after_match", "dispatch.before_commit", "dispatch.after_commit"])
def test_a_dispatch_that_breaks_off_loses_nothing_and_starts_nothing_twice(acme: TestRealm, place: str) -> None:
    while dispatch(acme.database, start_for_events).events:
        pass
    workflow = acme.published(listening("user.created"))
    ada, bob = acme.user(), acme.user()
    arm(f"{place}=raise")
    try:
        dispatch(acme.database, start_for_events)
    finally:
        arm("")
    dispatch(acme.database, start_for_events)
    assert [run.subject_id for run in runs_of(acme, workflow)] == [ada, bob]


# loops


def test_an_event_that_a_run_caused_never_starts_the_same_workflow(acme: TestRealm, worker: Worker) -> None:
    role, other = (acme.role(None, "realm.users.read", boundary="realm") for _ in range(2))
    grant = step("assign_role", role_id=role, scope="realm", organization_id=...)
    workflow = acme.published(listening("role.assignment.granted", steps=[grant]))
    drain(worker, acme)
    ada = acme.user()
    acme.grant(ada, other)
    drain(worker, acme)
    (run,) = [run for run in runs_of(acme, workflow) if run.subject_id == ada]
    assert run.state == "succeeded"
    (row,) = [row for row in suppressed(acme) if row.correlation_id == run.id]
    assert (row.actor_type, row.target_type, row.target_id) == ("system", "workflow", workflow)
    assert (row.category, row.request_id) == ("workflow", run.id)
    assert row.details["reason"] == "WORKFLOW_LOOP"


def test_a_chain_of_workflows_is_followed_to_depth_three_and_no_further(acme: TestRealm, worker: Worker) -> None:
    sales, role = acme.organization(), acme.role(None, "org.members.read")
    team = acme.group(sales)
    chain = [
        ("organization.membership.added", step("assign_role", role_id=role, organization_id=...)),
        ("role.assignment.granted", step("add_to_group", group_id=team, organization_id=...)),
        ("group.membership.added", step("remove_role", role_id=role, scope="organization")),
        ("role.assignment.revoked", step("remove_from_group", group_id=team, organization_id=...)),
        ("group.membership.removed", step("suspend_user")),
    ]
    workflows = [acme.published(listening(type_, organization_id=sales, steps=[each])) for type_, each in chain]
    (ada,) = acme.users(1, sales)
    drain(worker, acme)
    found = [runs_of(acme, workflow) for workflow in workflows]
    assert [[(run.depth, run.state, run.subject_id) for run in each] for each in found] == [
        [(0, "succeeded", ada)],
        [(1, "succeeded", ada)],
        [(2, "succeeded", ada)],
        [(3, "succeeded", ada)],
        [],
    ]
    (row,) = suppressed(acme)
    assert (row.target_id, row.correlation_id) == (workflows[4], found[3][0].id)
    assert (row.details["reason"], row.details["depth"]) == ("WORKFLOW_LOOP", 4)
    starts = [audit_of(acme, each[0].id)[0].details["caused_by"] for each in found[:4]]
    assert starts == [None, *[each[0].id for each in found[:3]]]


def test_two_workflows_that_trigger_each_other_are_stopped_by_the_depth(acme: TestRealm, worker: Worker) -> None:
    role = acme.role(None, "realm.users.read", boundary="realm")
    grant = step("assign_role", role_id=role, scope="realm", organization_id=...)
    there = acme.published(listening("role.assignment.revoked", steps=[grant]))
    back = acme.published(listening("role.assignment.granted", steps=[step("remove_role", role_id=role)]))
    drain(worker, acme)
    ada = acme.holder(role)
    drain(worker, acme)
    depths = [
        (run.depth, run.workflow_id) for each in (there, back) for run in runs_of(acme, each) if run.subject_id == ada
    ]
    assert sorted(depths) == sorted([(0, back), (1, there), (2, back), (3, there)])
    (row,) = [row for row in suppressed(acme) if row.details["depth"] == 4]
    assert row.target_id == back


# an event that cannot be matched


def test_a_poisoned_event_is_set_aside_after_ten_failures_while_the_others_go_on(
    acme: TestRealm, worker: Worker
) -> None:
    """A run cannot name an organization that does not exist: the database refuses it, however often it is tried."""
    workflow = acme.published(listening("user.suspended"))
    ada = acme.user()
    poisoned = an_event(acme, "user.suspended", ada, "org_that_never_was")
    for failures in range(1, 11):
        sound = an_event(acme, "user.suspended", ada)
        assert sum(report.errors for report in drain(worker, acme)) == 1
        (event_,) = rows(acme.database, "SELECT * FROM outbox_events WHERE id = :id", id=poisoned)
        assert event_.attempts == failures
        assert event_.last_error == "ForeignKeyViolation 23503"
        assert event_.dispatched_at is None
        assert runs_of(acme, workflow)[-1].event_id == sound
        assert (event_.set_aside_at is not None) == (failures == 10)
        if failures < 10:
            assert event_.due_at is not None
            owner(acme.database, "UPDATE outbox_events SET due_at = clock_timestamp() WHERE id = :id", id=poisoned)
    assert sum(report.errors for report in drain(worker, acme)) == 0
    assert len(runs_of(acme, workflow)) == 10
    (row,) = suppressed(acme)
    assert (row.actor_type, row.target_type, row.target_id) == ("system", "outbox_event", poisoned)
    assert row.details == {"reason": "DISPATCH_FAILED", "event_type": "user.suspended", "attempts": 10}


# waking up


def test_an_event_ends_the_wait_of_an_idle_worker(acme: TestRealm, module_database: Database) -> None:
    with working(module_database, poll_interval=15) as worker:
        drain(worker, acme)
        happening = threading.Timer(0.2, acme.user)
        happening.start()
        began = time.monotonic()
        worker.wait(threading.Event())
        assert 0.1 < time.monotonic() - began < 10
        happening.join()


def test_an_event_that_a_run_causes_is_dispatched_without_waiting_for_a_poll(
    acme: TestRealm, module_database: Database
) -> None:
    ada = acme.user()
    follower = acme.published(listening("user.suspended"))
    first = acme.published(definition(step("suspend_user")))
    with working(module_database, poll_interval=15) as worker:
        drain(worker, acme)
        acme.run(first, ada)
        began = time.monotonic()
        while not (found := runs_of(acme, follower)) or found[0].state != "succeeded":
            worker.wait(threading.Event())
            worker.run_pass()
        assert time.monotonic() - began < 10


# people


def manual(
    acme: TestRealm, workflow: str, subject: str, organization: str | None = None, **more: Any
) -> tuple[str, bool]:
    with acme.database.begin() as connection:
        return runs.start_manual(connection, more.pop("by", acme.cause), workflow, subject, organization, **more)


def refusal(
    acme: TestRealm, workflow: str, subject: str, organization: str | None = None, **more: Any
) -> tuple[str, str | None]:
    """Category and path of the refusal to start such a run."""
    with pytest.raises(Refused) as raised:
        manual(acme, workflow, subject, organization, **more)
    assert runs_of(acme, workflow) == []
    return raised.value.category, raised.value.path


def test_a_manual_run_is_its_starter_s_doing_and_its_publisher_s_responsibility(
    acme: TestRealm, worker: Worker
) -> None:
    publisher, sales = acme.holder(acme.roles["realm-admin"]), acme.organization()
    workflow = acme.published(definition(step("end")), publisher=publisher)
    ada = acme.user()
    run_id, new = manual(acme, workflow, ada, sales)
    assert new
    run = run_of(acme, run_id)
    assert (run.trigger_type, run.starter_id, run.publisher_id) == ("manual", acme.admin, publisher)
    assert (run.subject_id, run.organization_id, run.input_version) == (ada, sales, 1)
    assert run.input == {"user_id": ada, "organization_id": sales}
    (began,) = audit_of(acme, run_id)
    assert (began.actor_id, began.details["publisher_id"]) == (acme.admin, publisher)
    drain(worker, acme)
    assert outcome(acme, run_id) == ("succeeded", None)


def test_the_same_request_under_a_key_gives_the_same_run_and_another_request_is_refused(acme: TestRealm) -> None:
    first, second = (acme.published(definition(step("end"))) for _ in range(2))
    ada, bob, sales = acme.user(), acme.user(), acme.organization()
    run, new = manual(acme, first, ada, key="k1")
    assert new
    assert manual(acme, first, ada, key="k1") == (run, False)
    for workflow, subject, organization in ((first, bob, None), (second, ada, None), (first, ada, sales)):
        with pytest.raises(Refused) as refused:
            manual(acme, workflow, subject, organization, key="k1")
        assert (refused.value.category, refused.value.path) == ("validation_failed", "Idempotency-Key")
    others = [manual(acme, first, ada, key="k2"), manual(acme, first, ada), manual(acme, first, ada)]
    assert all(is_new for _, is_new in others)
    assert len({run, *[other for other, _ in others]}) == 4


def test_a_key_is_of_the_caller_who_chose_it(acme: TestRealm) -> None:
    workflow, ada = acme.published(definition(step("end"))), acme.user()
    run, _ = manual(acme, workflow, ada, key="k1")
    other = acme.holder(acme.roles["realm-admin"])
    another, new = manual(acme, workflow, ada, key="k1", by=acme.by(other))
    assert new
    assert another != run


def test_a_start_that_is_refused_uses_up_no_key(acme: TestRealm) -> None:
    workflow, ada = acme.workflow(), acme.user()
    with pytest.raises(Refused, match="draft"):
        manual(acme, workflow, ada, key="k1")
    assert rows(acme.database, "SELECT key FROM idempotency_keys WHERE realm_id = :realm", realm=acme.id) == []


def test_of_requests_with_one_key_at_once_one_starts_a_run_and_none_another(acme: TestRealm) -> None:
    workflow, ada, barrier = acme.published(definition(step("end"))), acme.user(), threading.Barrier(4)
    found: list[tuple[str, bool]] = []
    in_use: list[str] = []

    def start_it() -> None:
        barrier.wait()
        try:
            found.append(manual(acme, workflow, ada, key="once"))
        except Refused as refusal:
            in_use.append(refusal.category)

    threads = [threading.Thread(target=start_it) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) + len(in_use) == 4
    assert set(in_use) <= {"conflict"}
    assert len({run for run, _ in found}) == 1
    assert [new for _, new in found].count(True) == 1
    assert len(runs_of(acme, workflow)) == 1


def test_while_a_key_is_in_use_the_same_request_is_told_so(acme: TestRealm) -> None:
    workflow, ada = acme.published(definition(step("end"))), acme.user()
    with acme.database.begin() as connection:
        run, _ = runs.start_manual(connection, acme.cause, workflow, ada, key="k1")
        with pytest.raises(Refused) as refused:
            manual(acme, workflow, ada, key="k1")
        assert (refused.value.category, refused.value.path) == ("conflict", "Idempotency-Key")
    assert manual(acme, workflow, ada, key="k1") == (run, False)


def test_a_manual_run_needs_a_manual_trigger_and_an_active_workflow(acme: TestRealm) -> None:
    ada = acme.user()
    assert refusal(acme, acme.published(listening("user.suspended")), ada) == ("conflict", None)
    draft = acme.workflow()
    acme.revision(draft, definition(step("end")))
    assert refusal(acme, draft, ada) == ("conflict", None)
    disabled = acme.published(definition(step("end")))
    owner(acme.database, "UPDATE workflows SET state = 'disabled' WHERE id = :id", id=disabled)
    assert refusal(acme, disabled, ada) == ("conflict", None)


def test_a_manual_run_is_about_somebody_and_somewhere_of_the_realm(acme: TestRealm) -> None:
    workflow, ada, far = acme.published(definition(step("end"))), acme.user(), a_realm(acme.database)
    assert refusal(acme, workflow, far.user()) == ("not_found", "subject_id")
    assert refusal(acme, workflow, acme.user(state="deleted")) == ("not_found", "subject_id")
    assert refusal(acme, workflow, ada, far.organization()) == ("not_found", "organization_id")
    assert refusal(acme, workflow, ada, acme.organization(state="archived")) == ("not_found", "organization_id")
    with pytest.raises(Refused, match="does not exist"):
        manual(far, workflow, far.user())


def test_nobody_starts_a_run_about_themselves(acme: TestRealm) -> None:
    assert refusal(acme, acme.published(definition(step("end"))), acme.admin) == ("forbidden", "subject_id")


def test_only_users_start_runs(acme: TestRealm) -> None:
    workflow, ada = acme.published(definition(step("end"))), acme.user()
    service = Cause(acme.id, "service_principal", ids.new(ids.Prefix.SERVICE_PRINCIPAL))
    assert refusal(acme, workflow, ada, by=service) == ("forbidden", None)
    assert refusal(acme, workflow, ada, by=Cause(acme.id)) == ("forbidden", None)


def test_a_starter_needs_the_right_to_run_and_to_do_every_step_by_hand(acme: TestRealm) -> None:
    ada = acme.user()
    workflow = acme.published(definition(step("end"), step("suspend_user", id="b")))
    right = acme.role(None, "realm.workflows.run", boundary="realm")
    starter = acme.holder(acme.role(None, "realm.users.suspend", boundary="realm"))
    assert refusal(acme, workflow, ada, by=acme.by(starter)) == ("forbidden", None)
    weak = acme.holder(right)
    assert refusal(acme, workflow, ada, by=acme.by(weak)) == ("forbidden", "definition.steps[1]")
    acme.grant(starter, right)
    _, new = manual(acme, workflow, ada, by=acme.by(starter))
    assert new


def test_a_starter_s_authority_is_asked_in_the_organization_of_the_run(acme: TestRealm) -> None:
    here, elsewhere = acme.organization(), acme.organization()
    workflow = acme.published(definition(step("remove_membership", organization_id=...)))
    starter = acme.holder(acme.role(None, "org.members.write"), here)
    acme.grant(starter, acme.role(None, "realm.workflows.run", boundary="realm"))
    ada = acme.user()
    assert refusal(acme, workflow, ada, elsewhere, by=acme.by(starter)) == ("forbidden", "definition.steps[0]")
    assert refusal(acme, workflow, ada, by=acme.by(starter)) == ("forbidden", "definition.steps[0]")
    _, new = manual(acme, workflow, ada, here, by=acme.by(starter))
    assert new


def test_a_role_beyond_what_the_starter_holds_exceeds_the_grant_ceiling(acme: TestRealm) -> None:
    sales, role = acme.organization(), acme.role(None, "org.members.write")
    workflow = acme.published(definition(step("assign_role", role_id=role, organization_id=...)))
    starter = acme.holder(acme.role(None, "org.roles.assign", "org.members.read"), sales)
    acme.grant(starter, acme.role(None, "realm.workflows.run", boundary="realm"))
    (ada,) = acme.users(1, sales)
    found = refusal(acme, workflow, ada, sales, by=acme.by(starter))
    assert found == ("grant_ceiling_exceeded", "definition.steps[0]")


def test_a_published_definition_that_was_changed_in_the_database_starts_nothing(acme: TestRealm) -> None:
    workflow = acme.published(definition(step("end")))
    assert parse(definition(step("end")))
    owner(
        acme.database,
        "UPDATE workflow_revisions SET definition = replace(definition, 'manual', 'manuel') WHERE workflow_id = :id",
        id=workflow,
    )
    assert refusal(acme, workflow, acme.user()) == ("definition_unavailable", None)


def test_an_event_starts_no_run_of_a_revision_that_does_not_listen_to_it(acme: TestRealm, worker: Worker) -> None:
    """Matched against the revision before, while the next one is being published: the match is made again under the lock."""
    drain(worker, acme)
    workflow = acme.published(definition(step("notify", recipients=...), triggers=[event("user.created")]))
    number = acme.revision(workflow, definition(step("suspend_user"), triggers=[event("user.suspended")]))
    acme.user()
    dispatching = threading.Thread(target=dispatch, args=(acme.database, start_for_events))
    with acme.database.begin() as connection:
        revisions.publish(connection, acme.cause, workflow, number)
        dispatching.start()
        until(lambda: waiting(acme))
    dispatching.join()
    assert runs_of(acme, workflow) == []
