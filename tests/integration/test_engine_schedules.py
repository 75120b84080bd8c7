"""Schedules: every slot once, filled to the last subject however often it breaks off, and none caught up."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pytest

from engine.core.errors import DefinitionInvalid
from engine.core.failpoints import arm
from engine.lifecycle import revisions
from engine.lifecycle.schedules import FiredSlot, fire_due
from engine.lifecycle.slots import slot_after, slot_at, slots_between
from engine.lifecycle.triggers import start_for_events
from engine.lifecycle.worker import Worker
from engine.outbox.dispatch import dispatch
from tests.definitions import Json, definition, schedule, step
from tests.driver import AnyRow, attempts_of, drain, owner, rows
from tests.factories import TestRealm

HOUR = timedelta(hours=1)
NOON = datetime(2026, 3, 28, 12, tzinfo=UTC)


@pytest.fixture
def role(acme: TestRealm) -> str:
    return acme.role(None, "realm.users.read", boundary="realm")


@contextmanager
def breaking(failpoint: str) -> Iterator[None]:
    arm(failpoint)
    try:
        yield
    finally:
        arm("")


def hourly(acme: TestRealm, role: str, *steps: Json, **select: object) -> str:
    """A workflow that is due every hour for the holders of a role."""
    trigger = schedule(
        "role_holders", "1h", **{"role_id": role, "organization_id": ..., "granted_before": ...} | select
    )
    return acme.published(definition(*(steps or [step("end")]), triggers=[trigger]))


_PASSING = (
    "UPDATE workflows SET first_published_at = first_published_at - :by WHERE id = :id",
    "UPDATE schedule_triggers SET next_slot_at = next_slot_at - :by, slot_at = slot_at - :by WHERE workflow_id = :id",
    """UPDATE workflow_runs SET trigger_key = 'slot:' || to_char(
         (substr(trigger_key, 6)::timestamptz - :by) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"+00:00"')
       WHERE workflow_id = :id""",
)


def pass_time(acme: TestRealm, workflow: str, by: timedelta) -> None:
    """The workflow was published so much earlier, its slots were, and its next one is so much nearer."""
    for statement in _PASSING:
        owner(acme.database, statement, by=by, id=workflow)


def fire(acme: TestRealm, workflow: str) -> list[tuple[int, bool]]:
    """Fires what is due; how many runs the slots of the workflow that ended started, and whether they were complete."""
    return [(slot.started, slot.complete) for slot in fire_due(acme.database) if slot.workflow_id == workflow]


def runs_of(acme: TestRealm, workflow: str) -> list[AnyRow]:
    return rows(acme.database, "SELECT * FROM workflow_runs WHERE workflow_id = :id ORDER BY created_at", id=workflow)


def trigger_of(acme: TestRealm, workflow: str) -> AnyRow:
    (row,) = rows(acme.database, "SELECT * FROM schedule_triggers WHERE workflow_id = :id", id=workflow)
    return row


def anchor_of(acme: TestRealm, workflow: str) -> datetime:
    (row,) = rows(acme.database, "SELECT first_published_at FROM workflows WHERE id = :id", id=workflow)
    found: datetime = row.first_published_at
    return found


def fired(acme: TestRealm, workflow: str) -> list[Json]:
    """What was audited of the workflow's slots."""
    query = "SELECT * FROM audit_events WHERE target_id = :id AND type = 'workflow.schedule.fired' ORDER BY position"
    found = rows(acme.database, query, id=workflow)
    assert all((row.actor_type, row.actor_id, row.category) == ("system", None, "workflow") for row in found)
    return [row.details for row in found]


def holders(acme: TestRealm, role: str, count: int) -> list[str]:
    """Many users who hold a role of the realm, at once."""
    made = acme.users(count)
    owner(
        acme.database,
        "INSERT INTO role_assignments (realm_id, id, role_id, user_id, scope)"
        " SELECT :realm, 'ras_' || substr(user_id, 5), :role, user_id, 'realm' FROM unnest(CAST(:users AS text[])) AS user_id",
        realm=acme.id,
        role=role,
        users=made,
    )
    return made


# the arithmetic of slots


def test_the_first_slot_comes_one_interval_after_the_anchor() -> None:
    assert slot_after(NOON, HOUR, NOON) == NOON + HOUR
    assert slot_after(NOON, HOUR, NOON - timedelta(days=9)) == NOON + HOUR
    assert slot_after(NOON, HOUR, NOON + timedelta(minutes=59, seconds=59)) == NOON + HOUR


def test_a_slot_is_never_after_its_moment_and_the_next_one_always_is() -> None:
    every = timedelta(hours=7)
    for minutes in range(0, 5000, 13):
        moment = NOON + timedelta(minutes=minutes)
        at, after = slot_at(NOON, every, moment), slot_after(NOON, every, moment)
        assert at <= moment < after == at + every
        assert (at - NOON) % every == timedelta(0)


def test_slots_are_elapsed_time_and_know_no_summer_time() -> None:
    """Twenty-four hours over the night in which clocks go forward are twenty-four hours."""
    day = timedelta(hours=24)
    assert slot_at(NOON, day, NOON + day) == NOON + day
    assert slot_after(NOON, day, NOON + day) == NOON + 2 * day


def test_the_slots_that_were_missed_are_those_before_the_latest() -> None:
    assert slots_between(NOON, NOON, HOUR) == 0
    assert slots_between(NOON, NOON + 3 * HOUR, HOUR) == 3
    assert slots_between(NOON + HOUR, NOON, HOUR) == 0


# firing


def test_a_slot_starts_a_run_for_every_holder_of_the_role_and_is_audited(
    acme: TestRealm, role: str, worker: Worker
) -> None:
    held = holders(acme, role, 3)
    workflow = hourly(acme, role)
    assert fire(acme, workflow) == []  # publication itself is no slot
    pass_time(acme, workflow, HOUR)
    slot = anchor_of(acme, workflow) + HOUR
    assert [each for each in fire_due(acme.database) if each.workflow_id == workflow] == [
        FiredSlot(acme.id, workflow, slot, 3, True)
    ]
    started = runs_of(acme, workflow)
    assert sorted(run.subject_id for run in started) == sorted(held)
    for run in started:
        assert (run.trigger_type, run.trigger_key) == ("schedule", f"slot:{slot.isoformat()}")
        assert (run.publisher_id, run.organization_id, run.input_version) == (acme.admin, None, 1)
        assert run.input == {"user_id": run.subject_id}
    assert fired(acme, workflow) == [{"slot": slot.isoformat(), "started": 3, "complete": True, "missed": 0}]
    assert trigger_of(acme, workflow).next_slot_at == slot + HOUR
    assert fire(acme, workflow) == []
    drain(worker, acme)
    assert {run.state for run in runs_of(acme, workflow)} == {"succeeded"}
    assert attempts_of(acme, started[0].id)[0].input_version.endswith(":i1")


def test_every_slot_covers_the_population_again(acme: TestRealm, role: str) -> None:
    (ada,) = holders(acme, role, 1)
    workflow = hourly(acme, role)
    for slots in (1, 2):
        pass_time(acme, workflow, HOUR)
        assert fire(acme, workflow) == [(1, True)]
        assert [run.subject_id for run in runs_of(acme, workflow)] == [ada] * slots


def test_twelve_hundred_subjects_are_started_in_transactions_of_five_hundred_resumed_behind_the_last(
    acme: TestRealm, role: str
) -> None:
    held = holders(acme, role, 1200)
    workflow = hourly(acme, role)
    pass_time(acme, workflow, HOUR)
    with breaking("schedule.before_commit=raise#2"):
        assert fire(acme, workflow) == []
    resume = trigger_of(acme, workflow)
    begun = sorted(run.subject_id for run in runs_of(acme, workflow))
    assert begun == sorted(held)[:500]
    assert (resume.slot_cursor, resume.slot_started) == (begun[-1], 500)
    assert fired(acme, workflow) == []
    with breaking("schedule.after_commit=raise"):  # which is no reason to start anybody twice
        assert fire(acme, workflow) == []
    assert len(runs_of(acme, workflow)) == 1000
    assert fire(acme, workflow) == [(1200, True)]
    assert sorted(run.subject_id for run in runs_of(acme, workflow)) == sorted(held)
    assert len({run.trigger_key for run in runs_of(acme, workflow)}) == 1
    assert [(each["started"], each["complete"]) for each in fired(acme, workflow)] == [(1200, True)]
    done = trigger_of(acme, workflow)
    assert (done.slot_at, done.slot_cursor, done.slot_started) == (None, None, 0)


def test_a_population_of_exactly_five_hundred_is_covered(acme: TestRealm, role: str) -> None:
    holders(acme, role, 500)
    workflow = hourly(acme, role)
    pass_time(acme, workflow, HOUR)
    assert fire(acme, workflow) == [(500, True)]
    assert len(fired(acme, workflow)) == 1


def test_a_slot_that_is_not_covered_when_the_next_comes_ends_incomplete(acme: TestRealm, role: str) -> None:
    holders(acme, role, 600)
    workflow = hourly(acme, role)
    pass_time(acme, workflow, HOUR)
    with breaking("schedule.before_commit=raise#2"):
        fire(acme, workflow)
    pass_time(acme, workflow, HOUR)
    assert fire(acme, workflow) == [(500, False), (600, True)]
    assert [(each["started"], each["complete"]) for each in fired(acme, workflow)] == [(500, False), (600, True)]
    assert len(runs_of(acme, workflow)) == 1100


def test_missed_slots_are_not_caught_up(acme: TestRealm, role: str) -> None:
    holders(acme, role, 2)
    workflow = hourly(acme, role)
    pass_time(acme, workflow, 6 * HOUR + timedelta(minutes=20))
    assert fire(acme, workflow) == [(2, True)]
    slot = anchor_of(acme, workflow) + 6 * HOUR
    assert fired(acme, workflow) == [{"slot": slot.isoformat(), "started": 2, "complete": True, "missed": 5}]
    assert trigger_of(acme, workflow).next_slot_at == slot + HOUR
    assert fire(acme, workflow) == []


def test_schedulers_that_fire_at_once_fire_a_slot_once(acme: TestRealm, role: str) -> None:
    held = holders(acme, role, 700)
    workflow = hourly(acme, role)
    pass_time(acme, workflow, HOUR)
    ended: list[tuple[int, bool]] = []
    barrier = threading.Barrier(3)

    def scheduler() -> None:
        barrier.wait()
        ended.extend(fire(acme, workflow))

    threads = [threading.Thread(target=scheduler) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ended += fire(acme, workflow)  # a scheduler passes over what another is at
    assert ended == [(700, True)]
    assert sorted(run.subject_id for run in runs_of(acme, workflow)) == sorted(held)
    assert len(fired(acme, workflow)) == 1


def test_two_schedules_of_one_workflow_start_a_user_once_a_slot(acme: TestRealm, role: str) -> None:
    other = acme.role(None, "realm.roles.read", boundary="realm")
    ada, bob = acme.holder(role), acme.holder(other)
    acme.grant(ada, other)
    triggers = [
        schedule("role_holders", "1h", role_id=each, organization_id=..., granted_before=...) for each in (role, other)
    ]
    workflow = acme.published(definition(step("end"), triggers=triggers))
    pass_time(acme, workflow, HOUR)
    assert sorted(fire(acme, workflow)) == [(1, True), (1, True)]
    assert sorted(run.subject_id for run in runs_of(acme, workflow)) == sorted([ada, bob])


# whom a slot selects


def test_only_users_who_can_be_a_subject_and_hold_the_role_now_are_selected(acme: TestRealm, role: str) -> None:
    ada = acme.holder(role)
    away, gone, expired = (acme.holder(role) for _ in range(3))
    owner(acme.database, "UPDATE users SET state = 'suspended', suspended_at = now() WHERE id = :id", id=away)
    owner(acme.database, "UPDATE users SET state = 'deleted' WHERE id = :id", id=gone)
    owner(acme.database, "UPDATE role_assignments SET expires_at = now() WHERE user_id = :id", id=expired)
    workflow = hourly(acme, role)
    pass_time(acme, workflow, HOUR)
    assert fire(acme, workflow) == [(1, True)]
    assert [run.subject_id for run in runs_of(acme, workflow)] == [ada]


def test_granted_before_selects_those_who_have_held_the_role_for_longer(acme: TestRealm, role: str) -> None:
    old, new = acme.holder(role), acme.holder(role)
    for user, hours in ((old, 49), (new, 47)):
        owner(
            acme.database,
            "UPDATE role_assignments SET granted_at = now() - :age WHERE user_id = :id",
            age=timedelta(hours=hours),
            id=user,
        )
    workflow = hourly(acme, role, granted_before="48h")
    pass_time(acme, workflow, HOUR)
    fire(acme, workflow)
    assert [run.subject_id for run in runs_of(acme, workflow)] == [old]


def test_the_selector_s_organization_is_the_run_s_and_filters_its_subjects(acme: TestRealm) -> None:
    role, here, elsewhere = acme.role(None, "org.members.read"), acme.organization(), acme.organization()
    ada = acme.holder(role, here)
    acme.holder(role, elsewhere)
    workflow = hourly(acme, role, organization_id=here)
    pass_time(acme, workflow, HOUR)
    fire(acme, workflow)
    assert [(run.subject_id, run.organization_id) for run in runs_of(acme, workflow)] == [(ada, here)]


def test_one_who_holds_the_role_in_two_organizations_is_started_once(acme: TestRealm) -> None:
    role = acme.role(None, "org.members.read")
    ada = acme.holder(role, acme.organization())
    other = acme.organization(None, ada)
    acme.grant(ada, role, other)
    workflow = hourly(acme, role)
    pass_time(acme, workflow, HOUR)
    assert fire(acme, workflow) == [(1, True)]
    assert [(run.subject_id, run.organization_id) for run in runs_of(acme, workflow)] == [(ada, None)]


# workflows and schedules


def test_a_disabled_workflow_fires_nothing_and_then_only_its_latest_slot(acme: TestRealm, role: str) -> None:
    holders(acme, role, 1)
    workflow = hourly(acme, role)
    owner(acme.database, "UPDATE workflows SET state = 'disabled' WHERE id = :id", id=workflow)
    pass_time(acme, workflow, 4 * HOUR)
    assert fire(acme, workflow) == []
    assert runs_of(acme, workflow) == []
    owner(acme.database, "UPDATE workflows SET state = 'active' WHERE id = :id", id=workflow)
    assert fire(acme, workflow) == [(1, True)]


def test_publishing_again_keeps_the_anchor_of_the_slots(acme: TestRealm, role: str) -> None:
    holders(acme, role, 1)
    workflow = hourly(acme, role)
    pass_time(acme, workflow, timedelta(minutes=90))
    anchor = anchor_of(acme, workflow)
    trigger = schedule("role_holders", "2h", role_id=role, organization_id=..., granted_before=...)
    number = acme.revision(workflow, definition(step("end"), triggers=[trigger]))
    with acme.database.begin() as connection:
        revisions.publish(connection, acme.cause, workflow, number)
    assert anchor_of(acme, workflow) == anchor
    assert trigger_of(acme, workflow).next_slot_at == anchor + 2 * HOUR


def test_a_schedule_that_cannot_be_read_holds_up_no_other_and_is_lost_no_slot(acme: TestRealm, role: str) -> None:
    holders(acme, role, 1)
    broken, sound = hourly(acme, role), hourly(acme, role)
    pass_time(acme, broken, 2 * HOUR)  # the first in line
    pass_time(acme, sound, HOUR)
    selector = trigger_of(acme, broken).selector
    spoil = "UPDATE schedule_triggers SET selector = CAST(:selector AS jsonb) WHERE workflow_id = :id"
    owner(acme.database, spoil, selector='{"type": "everyone"}', id=broken)
    assert fire(acme, sound) == [(1, True)]
    assert runs_of(acme, broken) == []
    assert fire(acme, broken) == []
    owner(acme.database, spoil, selector=str(selector).replace("'", '"'), id=broken)
    assert fire(acme, broken) == [(1, True)]


def test_a_selector_that_cannot_be_fired_yet_is_refused_at_publication(acme: TestRealm) -> None:
    sales = acme.organization()
    workflow = acme.workflow()
    trigger = schedule("organization_members", organization_id=sales)
    number = acme.revision(workflow, definition(step("end"), triggers=[trigger]))
    with acme.database.begin() as connection, pytest.raises(DefinitionInvalid) as invalid:
        revisions.publish(connection, acme.cause, workflow, number)
    assert [fault.path for fault in invalid.value.faults] == ["definition.triggers[0].select.type"]


def test_a_slot_starts_no_event_driven_run_by_itself(acme: TestRealm, role: str) -> None:
    """Starting runs leaves nothing in the outbox: what they do will."""
    holders(acme, role, 1)
    while dispatch(acme.database, start_for_events).events:
        pass
    workflow = hourly(acme, role)
    pass_time(acme, workflow, HOUR)
    fire(acme, workflow)
    assert dispatch(acme.database, start_for_events).events == 0
