"""Leases and fences: every run in one pair of hands at a time, whatever becomes of the hands."""

from __future__ import annotations

import threading
import time
from collections import Counter
from contextlib import AbstractContextManager
from datetime import timedelta

import pytest
from sqlalchemy.exc import OperationalError

from db.session import Database
from db.statements import runs as statements
from engine.core import leases
from engine.core.failpoints import FailpointHit, arm
from engine.core.leases import Lease
from engine.core.ledger import ShortWrite
from engine.core.settings import DeliverySettings, EngineSettings, WorkerSettings
from engine.lifecycle import rounds
from engine.lifecycle.plans import Plans
from engine.lifecycle.worker import Worker
from tests.definitions import Json, definition, event, step
from tests.driver import (
    CUT_OFF,
    DELIVERY,
    age,
    attempts_of,
    drain,
    emptied,
    many_runs,
    outcome,
    owner,
    rows,
    run_of,
    trail_of,
    trigger,
    until,
    working,
)
from tests.endpoints import Endpoint, silent_endpoint
from tests.factories import KEYRING, TestRealm, a_realm

SETTINGS = WorkerSettings()
LEASE = SETTINGS.lease_duration.total_seconds()


@pytest.fixture
def acme(module_database: Database) -> TestRealm:
    """Alone in its database: claims take whatever is due."""
    return a_realm(emptied(module_database))


def claimed(database: Database, owner: str, *, batch: int = 50) -> list[Lease]:
    """What one claim takes, committed."""
    with database.begin() as connection:
        return leases.claim(connection, owner, SETTINGS, batch=batch, after="")


def settled(acme: TestRealm) -> None:
    """The events of what was made so far are history."""
    owner(acme.database, "UPDATE outbox_events SET dispatched_at = now() WHERE realm_id = :realm", realm=acme.id)


def dead(acme: TestRealm) -> Worker:
    """A worker that is going to die: nobody hands its leases back, and nobody renews them."""
    worker = Worker.open(acme.database, EngineSettings(delivery=DELIVERY), KEYRING)
    worker._holdings.close()  # a dead process has no heartbeat
    return worker


def bury(worker: Worker) -> None:
    """What the operating system would do with what is left of it."""
    worker._callers.close()
    worker._courier.shutdown()
    worker._listener.close()


def expire_leases(acme: TestRealm) -> None:
    owner(
        acme.database,
        "UPDATE workflow_runs SET lease_expires_at = now() - interval '1 second', due_at = now() - interval '1 second'"
        " WHERE realm_id = :realm AND lease_owner IS NOT NULL",
        realm=acme.id,
    )


# claims


def test_two_workers_drain_three_hundred_runs_together_and_every_effect_happens_once(acme: TestRealm) -> None:
    sales, role = acme.organization(), acme.role(None, "org.members.read")
    team = acme.group(sales)
    steps = [
        step("assign_role", id="a", role_id=role, organization_id=...),
        step("add_to_group", id="b", group_id=team, organization_id=...),
        step("notify", id="c", recipients=...),
        step("end", id="d"),
    ]
    workflow = acme.published(definition(*steps, triggers=[event("organization.membership.added")]))
    members = acme.users(300, sales)
    ended: dict[int, list[str]] = {}

    def work(number: int) -> None:
        with working(acme.database) as worker:
            ended[number] = [run.run_id for report in drain(worker, acme) for run in report.ended]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert all(ended[number] for number in range(2))  # both had a share
    assert len(ended[0]) + len(ended[1]) == len({*ended[0], *ended[1]}) == 300
    runs = rows(acme.database, "SELECT * FROM workflow_runs WHERE workflow_id = :id", id=workflow)
    assert Counter(run.state for run in runs) == {"succeeded": 300}
    assert sorted(run.subject_id for run in runs) == sorted(members)
    attempts = rows(acme.database, "SELECT * FROM workflow_step_attempts WHERE realm_id = :realm", realm=acme.id)
    assert Counter((row.step_id, row.state, row.attempt) for row in attempts) == {
        (each, "succeeded", 1): 300 for each in "abcd"
    }
    assert all(row.result["changed"] for row in attempts)
    for query in (
        "SELECT user_id FROM role_assignments WHERE role_id = :role",
        "SELECT user_id FROM group_members WHERE group_id = :team",
        "SELECT recipient_id FROM messages WHERE realm_id = :realm",
    ):
        given = {"role": role, "team": team, "realm": acme.id}
        found = [
            row[0] for row in rows(acme.database, query, **{name: given[name] for name in given if f":{name}" in query})
        ]
        assert sorted(found) == sorted(members)
    told = rows(acme.database, "SELECT type FROM audit_events WHERE request_id LIKE 'wrn_%'")
    assert Counter(row.type for row in told) == {
        "workflow.run.started": 300,
        "role.assignment.granted": 300,
        "group.membership.added": 300,
        "workflow.step.succeeded": 1200,
        "workflow.run.succeeded": 300,
    }


def test_of_two_claimers_at_a_barrier_one_wins_and_the_fence_grows_by_one(acme: TestRealm) -> None:
    run, _ = acme.run(acme.published(definition(step("wait"))), acme.user())
    rounds_, won = 300, Counter[int]()
    start, end = threading.Barrier(2), threading.Barrier(2)
    taken: list[list[Lease]] = [[], []]
    wrong: list[str] = []

    def claim(number: int) -> None:
        for fence in range(1, rounds_ + 1):
            start.wait(20)
            taken[number] = claimed(acme.database, f"claimer {number}")
            end.wait(20)
            if number == 0:
                both = taken[0] + taken[1]
                if both != [Lease(acme.id, run, fence)]:
                    wrong.append(f"round {fence}: {both}")
                won[0 if taken[0] else 1] += 1
                with acme.database.begin() as connection:
                    held = [lease.row for lease in both]
                    statements.give_back(connection, held, owner=f"claimer {0 if taken[0] else 1}")

    threads = [threading.Thread(target=claim, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert won.total() == rounds_
    assert run_of(acme, run).fence == rounds_


def test_a_claim_takes_no_more_than_a_realm_s_share_and_leaves_room_for_the_others(acme: TestRealm) -> None:
    crowded, quiet = a_realm(acme.database), a_realm(acme.database)
    for realm, count in ((crowded, 120), (quiet, 5)):
        many_runs(realm, realm.published(definition(step("wait"))), realm.users(count))
    settled(acme)
    assert Counter(lease.realm_id for lease in claimed(acme.database, "a")) == {crowded.id: 40, quiet.id: 5}
    assert Counter(lease.realm_id for lease in claimed(acme.database, "a")) == {crowded.id: 40}


def test_realms_are_served_in_turn(acme: TestRealm) -> None:
    realms = sorted((a_realm(acme.database) for _ in range(6)), key=lambda realm: realm.id)
    for realm in realms:
        many_runs(realm, realm.published(definition(step("suspend_user"))), realm.users(6))
    with working(acme.database, batch_size=6, tenant_batch_share=2) as worker:
        served = []
        for _ in range(6):
            served.append({run.realm_id for run in worker.run_pass().ended})
    ids = [realm.id for realm in realms]
    assert served == [set(ids[:3]), set(ids[3:])] * 3


def test_a_crowded_realm_s_retries_and_leases_use_up_nobody_s_share(acme: TestRealm) -> None:
    """What is leased, or due later, is not due now."""
    workflow = acme.published(definition(step("suspend_user")))
    first = many_runs(acme, workflow, acme.users(40))
    assert len(claimed(acme.database, "dead")) == 40
    many_runs(acme, workflow, acme.users(40))
    owner(acme.database, "UPDATE workflow_runs SET due_at = now() + interval '1 hour' WHERE lease_owner IS NULL")
    now = many_runs(acme, workflow, acme.users(40))
    assert {lease.run_id for lease in claimed(acme.database, "a")} == set(now)
    assert {run_of(acme, run).lease_owner for run in first} == {"dead"}


def test_workers_of_one_process_have_names_of_their_own() -> None:
    assert len({leases.new_owner() for _ in range(100)}) == 100


# stale workers


@pytest.mark.parametrize("still_held", [True, False])
def test_a_worker_whose_run_was_taken_over_writes_nothing(acme: TestRealm, still_held: bool) -> None:
    run, _ = acme.run(acme.published(definition(step("suspend_user"), step("wait", id="b"))), acme.user())
    held = claimed(acme.database, "stale")
    age(acme, run, seconds=2 * LEASE)
    (taken,) = claimed(acme.database, "other")
    assert taken.taken_over
    if not still_held:
        leases.hand_back(acme.database, "other")
        with working(acme.database) as worker:
            drain(worker, acme)
    before = run_of(acme, run)
    assert before.state == ("pending" if still_held else "waiting")
    trail = trail_of(acme, run, "")
    assert_writes_nothing(acme, "stale", held[0])
    assert_writes_nothing(acme, "other", held[0])  # the owner's name alone is not enough
    assert_writes_nothing(acme, "stale", taken)  # nor is the fence
    assert run_of(acme, run) == before
    assert trail_of(acme, run, "") == trail


def assert_writes_nothing(acme: TestRealm, owner_: str, lease: Lease) -> None:
    """Nothing that a worker does under this lease has any effect."""
    row = lease.row
    assert rounds.advance(acme.database, owner_, Plans(), [lease], last=False, room_for_calls=1) == []
    with acme.database.begin() as connection:
        assert statements.lock_leased(connection, [row], owner=owner_) == []
        assert statements.renew(connection, [row], owner=owner_, lease=60) == 0
        assert statements.give_back(connection, [row], owner=owner_) == 0
        assert statements.put_off(connection, row, owner=owner_, interruptions=9, pause=0) == 0
        values = {"realm_id": row[0], "id": row[1], "fence": row[2], "lease_owner": owner_, "interruptions": 9}
        assert statements.COUNT_INTERRUPTION.run(connection, [values]) == 0


def test_an_expired_lease_is_no_lease_though_nobody_has_taken_the_run(acme: TestRealm) -> None:
    run, _ = acme.run(acme.published(definition(step("suspend_user"))), acme.user())
    held = claimed(acme.database, "slow")
    age(acme, run, seconds=2 * LEASE)
    assert rounds.advance(acme.database, "slow", Plans(), held, last=False, room_for_calls=1) == []
    with acme.database.begin() as connection:
        assert statements.renew(connection, [held[0].row], owner="slow", lease=60) == 0
        values = {"realm_id": acme.id, "id": run, "fence": 1, "lease_owner": "slow", "interruptions": 9}
        assert statements.COUNT_INTERRUPTION.run(connection, [values]) == 0
    assert run_of(acme, run).state == "pending"


def test_a_lease_that_runs_out_inside_the_transaction_takes_the_effect_with_it(acme: TestRealm) -> None:
    """The worker is held up on a lock between reading its lease and writing under it."""
    ada = acme.user()
    run, _ = acme.run(acme.published(definition(step("suspend_user"))), ada)
    with acme.database.begin() as connection:
        (row,) = statements.claim(connection, owner="slow", lease=0.4, batch=1, share=1, after="")
    failure: list[BaseException] = []

    def advance() -> None:
        try:
            rounds.advance(
                acme.database, "slow", Plans(), [Lease(acme.id, run, row.fence)], last=False, room_for_calls=1
            )
        except ShortWrite as error:
            failure.append(error)

    with acme.database.owner_engine.begin() as blocker:
        blocker.exec_driver_sql("SELECT 1 FROM users WHERE id = %s FOR UPDATE", (ada,))
        thread = threading.Thread(target=advance)
        thread.start()
        until(lambda: blocked(acme))
        until(lambda: rows(acme.database, "SELECT 1 FROM workflow_runs WHERE lease_expires_at < clock_timestamp()"))
    thread.join()
    assert len(failure) == 1
    assert run_of(acme, run).state == "pending"
    assert attempts_of(acme, run) == []
    assert rows(acme.database, "SELECT state FROM users WHERE id = :ada", ada=ada) == [("active",)]
    assert trail_of(acme, run, "") == ["workflow.run.started"]


def blocked(acme: TestRealm) -> bool:
    query = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    with acme.database.owner_engine.begin() as connection:
        return connection.exec_driver_sql(query).first() is not None


def test_an_answer_that_comes_after_the_run_was_taken_over_is_dropped(acme: TestRealm, endpoint: Endpoint) -> None:
    endpoint.hold.clear()
    call = step("call_webhook", id="sync", subscription_id=endpoint.subscription, timeout_ms=..., compensate=...)
    run, _ = acme.run(acme.published(definition(call)), acme.user())
    with working(acme.database) as slow:
        until(lambda: slow.run_pass() and endpoint.calls)
        age(acme, run, seconds=2 * LEASE)
        with working(acme.database) as other:
            assert other.run_pass().failed_attempts == {"interrupted": 1}
            by_other = run_of(acme, run)
            assert (by_other.state, by_other.error_category, by_other.lease_owner) == ("running", "interrupted", None)
            endpoint.hold.set()
            until(lambda: slow._callers.has_answers)
            assert slow.run_pass().moved == 0
        assert run_of(acme, run) == by_other
    owner(acme.database, "UPDATE workflow_runs SET due_at = now() WHERE id = :run", run=run)
    with working(acme.database) as third:
        drain(third, acme)
    assert outcome(acme, run) == ("succeeded", None)
    assert [(row.state, row.error_category) for row in attempts_of(acme, run)] == [
        ("failed", "interrupted"),
        ("succeeded", None),
    ]
    assert {call.headers["Idempotency-Key"] for call in endpoint.calls} == {f"{run}.sync"}
    assert len({call.headers["Webhook-Id"] for call in endpoint.calls}) == 2


def test_leases_are_renewed_while_a_call_is_out(acme: TestRealm) -> None:
    delivery = DeliverySettings(allow_private_egress=True, webhook_timeout=timedelta(seconds=0.4))
    short = timedelta(seconds=2.4)
    with silent_endpoint() as url, working(acme.database, delivery=delivery, lease_duration=short) as worker:
        hook = acme.subscription(url, allow_private_network=True)
        call = step("call_webhook", subscription_id=hook, timeout_ms=..., compensate=...)
        run, _ = acme.run(acme.published(definition(call)), acme.user())
        worker.run_pass()
        first = run_of(acme, run)
        later = until(lambda: (row := run_of(acme, run)).lease_expires_at > first.lease_expires_at and row, within=3)
        assert later.fence == first.fence
        assert later.due_at == later.lease_expires_at


def test_a_call_must_fit_into_the_lease() -> None:
    delivery = DeliverySettings(webhook_timeout=timedelta(seconds=9))
    with pytest.raises(ValueError, match="must not exceed"):
        EngineSettings(workers=WorkerSettings(lease_duration=timedelta(seconds=10)), delivery=delivery)


# taking over


def test_a_claim_that_was_committed_before_its_worker_died_is_taken_over(acme: TestRealm) -> None:
    run, _ = acme.run(acme.published(definition(step("suspend_user"))), acme.user())
    dying = dead(acme)
    arm("claim.after_commit=raise")
    try:
        with pytest.raises(FailpointHit):
            dying.run_pass()
    finally:
        arm("")
        bury(dying)
    assert run_of(acme, run).lease_owner == dying.owner
    with working(acme.database) as worker:
        assert worker.run_pass().claimed == 0  # its lease still holds
        expire_leases(acme)
        drain(worker, acme)
    assert outcome(acme, run) == ("succeeded", None)
    assert run_of(acme, run).fence == 2


def deadly(acme: TestRealm) -> AbstractContextManager[None]:
    """For real: the database cuts the connection of whoever records a success of the step of that name."""
    when = "NEW.step_id = 'deadly' AND NEW.state = 'succeeded'"
    return trigger(acme.database, "BEFORE INSERT ON workflow_step_attempts", CUT_OFF, when)


def die_on_it(acme: TestRealm) -> None:
    """A worker that does not outlive its next pass."""
    dying = dead(acme)
    with pytest.raises(OperationalError):
        dying.run_pass()
    bury(dying)
    expire_leases(acme)


def test_a_run_that_ten_workers_died_on_fails_and_its_neighbours_go_on_without_it(acme: TestRealm) -> None:
    killer, _ = acme.run(acme.published(definition(step("suspend_user", id="deadly"))), acme.user())
    neighbours = many_runs(acme, acme.published(definition(step("suspend_user"))), acme.users(3))
    settled(acme)
    owner(acme.database, "UPDATE workflow_runs SET due_at = due_at - interval '1 hour' WHERE id = :id", id=killer)
    with deadly(acme):
        die_on_it(acme)  # the whole batch
        assert run_of(acme, killer).interruptions == 0
        assert {run_of(acme, run).state for run in neighbours} == {"pending"}
        for deaths in (1, 2):
            die_on_it(acme)
            assert (run_of(acme, killer).interruptions, run_of(acme, killer).state) == (deaths, "pending")
        # each was taken over alone, and what has killed nobody yet went first
        assert {run_of(acme, run).state for run in neighbours} == {"succeeded"}
        owner(acme.database, "UPDATE workflow_runs SET interruptions = 8 WHERE id = :id", id=killer)
        die_on_it(acme)
        assert (run_of(acme, killer).interruptions, run_of(acme, killer).state) == (9, "pending")
        with working(acme.database) as worker:
            drain(worker, acme)
    assert outcome(acme, killer) == ("failed", "retries_exhausted")
    assert [(row.state, row.error_category) for row in attempts_of(acme, killer)] == [("failed", "retries_exhausted")]
    assert run_of(acme, killer).interruptions == 0


def test_a_step_that_gets_through_is_forgiven_the_deaths_before(acme: TestRealm) -> None:
    run, _ = acme.run(acme.published(definition(step("suspend_user", id="deadly"), step("wait", id="b"))), acme.user())
    with deadly(acme):
        for _ in range(3):
            die_on_it(acme)
    assert run_of(acme, run).interruptions == 2
    with working(acme.database) as worker:
        drain(worker, acme)
    assert (run_of(acme, run).state, run_of(acme, run).interruptions) == ("waiting", 0)
    assert [row.attempt for row in attempts_of(acme, run)] == [1, 1]


def test_a_call_that_its_worker_died_in_is_interrupted_and_made_again_under_the_same_key(
    acme: TestRealm, endpoint: Endpoint
) -> None:
    endpoint.hold.clear()
    call = step("call_webhook", id="sync", subscription_id=endpoint.subscription, timeout_ms=..., compensate=...)
    run, _ = acme.run(acme.published(definition(call)), acme.user())
    dying = dead(acme)
    until(lambda: dying.run_pass() and endpoint.calls)
    bury(dying)
    expire_leases(acme)
    endpoint.hold.set()
    with working(acme.database) as worker:
        drain(worker, acme)
        assert outcome(acme, run) == ("running", "interrupted")
        owner(acme.database, "UPDATE workflow_runs SET due_at = now() WHERE id = :run", run=run)
        drain(worker, acme)
    assert outcome(acme, run) == ("succeeded", None)
    assert [(row.state, row.attempt) for row in attempts_of(acme, run)] == [("failed", 1), ("succeeded", 2)]
    assert [call.headers["Idempotency-Key"] for call in endpoint.calls] == [f"{run}.sync"] * 2
    assert [call.headers["Webhook-Id"] for call in endpoint.calls] == [row.id for row in attempts_of(acme, run)]


# handing back


def test_a_worker_that_stops_hands_its_leases_back_at_once(acme: TestRealm) -> None:
    with silent_endpoint() as url:
        hook = acme.subscription(url, allow_private_network=True)
        call = step("call_webhook", subscription_id=hook, timeout_ms=..., compensate=...)
        run, _ = acme.run(acme.published(definition(call)), acme.user())
        worker = Worker.open(acme.database, EngineSettings(delivery=DELIVERY), KEYRING)
        worker.run_pass()
        assert run_of(acme, run).lease_owner == worker.owner
        began = time.monotonic()
        assert worker.close() == 1
        assert time.monotonic() - began < 10
    row = run_of(acme, run)
    assert (row.lease_owner, row.lease_expires_at) == (None, None)
    (taken,) = claimed(acme.database, "next")
    assert not taken.taken_over  # it was handed back, so it goes with the others


def test_a_worker_that_stops_records_the_answers_that_still_come(acme: TestRealm, endpoint: Endpoint) -> None:
    endpoint.hold.clear()
    call = step("call_webhook", subscription_id=endpoint.subscription, timeout_ms=..., compensate=...)
    run, _ = acme.run(acme.published(definition(call, step("wait", id="b"))), acme.user())
    worker = Worker.open(acme.database, EngineSettings(delivery=DELIVERY), KEYRING)
    until(lambda: worker.run_pass() and endpoint.calls)
    threading.Timer(0.1, endpoint.hold.set).start()
    assert worker.close() == 0
    row = run_of(acme, run)
    assert (row.state, row.step_index, row.lease_owner) == ("running", 1, None)
    assert [each.state for each in attempts_of(acme, run)] == ["succeeded"]


def test_the_leases_of_a_worker_that_was_seen_to_die_are_handed_back_by_its_name(acme: TestRealm) -> None:
    workflow = acme.published(definition(step("suspend_user")))
    runs = many_runs(acme, workflow, acme.users(3))
    assert len(claimed(acme.database, "crashed", batch=2)) == 2
    assert leases.hand_back(acme.database, "somebody else") == 0
    assert leases.hand_back(acme.database, "crashed") == 2
    assert len(claimed(acme.database, "next")) == 3
    assert {run_of(acme, run).lease_owner for run in runs} == {"next"}


# transitions


def long(acme: TestRealm, count: int, last: Json) -> tuple[str, list[str]]:
    """A run of `count` group steps and a last one, and the groups."""
    sales = acme.organization()
    (ada,) = acme.users(1, sales)
    teams = [acme.group(sales) for _ in range(count)]
    steps = [step("add_to_group", id=f"s{i}", group_id=team, organization_id=...) for i, team in enumerate(teams)]
    run, _ = acme.run(acme.published(definition(*steps, last)), ada, sales)
    settled(acme)
    return run, teams


def test_a_run_yields_after_twenty_five_transitions_and_is_due_at_once(acme: TestRealm) -> None:
    """Nineteen steps, a failure and five undos; fourteen more and the end are for the next claim."""
    run, _ = long(acme, 19, step("notify", recipients="approvers"))
    with working(acme.database) as worker:
        assert worker.run_pass().moved == 25
        row = run_of(acme, run)
        assert (row.state, row.lease_owner, row.fence) == ("compensating", None, 1)
        undone = [each for each in attempts_of(acme, run) if each.compensation_state == "done"]
        assert len(undone) == 5
        report = worker.run_pass()
    assert (report.claimed, report.moved) == (1, 15)
    assert outcome(acme, run) == ("compensated", "no_recipients")
    assert run_of(acme, run).fence == 2


def test_fewer_transitions_a_claim_come_to_the_same_end(acme: TestRealm) -> None:
    run, _ = long(acme, 7, step("end", id="z"))
    with working(acme.database, max_transitions=3) as worker:
        assert [worker.run_pass().moved for _ in range(4)] == [3, 3, 2, 0]
    assert outcome(acme, run) == ("succeeded", None)
    assert [row.attempt for row in attempts_of(acme, run)] == [1] * 8
