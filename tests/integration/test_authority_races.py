"""Authority that goes while runs are at work: in commit order, no effect without it (FAULTS.md, 16).

The database's own diary has the order of the commits (tests/diary.py). TENURE_ROUNDS says how many rounds each race has.
"""

from __future__ import annotations

import os
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
from pytest_httpserver import HTTPServer

from db.session import Database
from engine.directory.commands import assignments, users
from engine.lifecycle import approvals
from tests.definitions import Json, definition, step
from tests.diary import Diary, kept
from tests.driver import approval_of, drain, emptied, outcome, owner, rows, run_of, until, working
from tests.endpoints import Endpoint
from tests.factories import a_realm
from tests.losses import WAYS, Case
from tests.races import AT_ONCE, HANDS, Loss, hands_of, planned, scene, storm
from tests.staging import Stage
from tests.stops import BEFORE, BETWEEN, ENDING, a_racer, waiting
from tests.verdict import verdict

ROUNDS = int(os.environ.get("TENURE_ROUNDS", "200"))
LONG = int(os.environ.get("TENURE_ROUNDS", "2000"))

FURTHEST = 40
"""A stop so many statements behind the claim lies in the second round, if there is one."""

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def diary(module_database: Database) -> Iterator[Diary]:
    with kept(module_database) as diary:
        yield diary


@pytest.fixture(scope="module")
def hands(module_database: Database) -> Iterator[Database]:
    with hands_of(module_database) as hands:
        yield hands


@pytest.fixture
def stage(module_database: Database, hands: Database, diary: Diary, httpserver: HTTPServer) -> Stage:
    acme = a_realm(emptied(module_database))
    diary.forget()
    return Stage(acme, Endpoint(httpserver, acme), hands)


Outcomes = Counter[tuple[str, bool]]
"""How often which fate had which outcome: whether the step had its effect."""


def judged(stage: Stage, diary: Diary, losses: Sequence[Loss]) -> Outcomes:
    """The outcomes of a race, when nothing is wrong with any."""
    wrong, outcomes = verdict(stage, diary, losses)
    assert wrong == []
    for fate in ("withdrawn", "spared", "kept"):  # authority was never lost
        assert outcomes[fate, True] > 0
        assert outcomes[fate, False] == 0
    return outcomes


def played(stage: Stage, diary: Diary, name: str, rounds: int) -> Outcomes:
    """So many rounds of that race. Where the worker is stopped within its transaction, few share a stop."""
    chance = random.Random(f"{name} {rounds}")
    losses, at_once = planned(stage, chance, rounds), 4 if name == "inside" else AT_ONCE
    with a_racer(stage.acme.database) as racer:
        for first in range(0, rounds, at_once):
            inside = chance.choice([ENDING, *range(1, FURTHEST)])
            at = {"before": BEFORE, "between": BETWEEN, "inside": inside}[name]
            scene(stage, racer, losses[first : first + at_once], at)
    return judged(stage, diary, losses)


def before_the_claim(stage: Stage, diary: Diary, rounds: int) -> None:
    outcomes = played(stage, diary, "before", rounds)
    assert outcomes["lost", False] > 0
    assert outcomes["lost", True] == 0


def between_claim_and_effect(stage: Stage, diary: Diary, rounds: int) -> None:
    outcomes = played(stage, diary, "between", rounds)
    assert outcomes["lost", False] > 0
    assert outcomes["lost", True] == 0


def inside_the_transaction(stage: Stage, diary: Diary, rounds: int) -> None:
    outcomes = played(stage, diary, "inside", rounds)
    assert outcomes["lost", False] > 0
    assert outcomes["lost", True] > 0


def at_any_moment(stage: Stage, diary: Diary, rounds: int) -> None:
    chance = random.Random(f"storm {rounds}")
    losses = planned(stage, chance, rounds)
    storm(stage, chance, losses)
    outcomes = judged(stage, diary, losses)
    assert outcomes["lost", False] + outcomes["pending", False] > 0
    assert outcomes["lost", True] + outcomes["pending", True] > 0


Race = Callable[[Stage, Diary, int], None]

RACES: tuple[Race, ...] = (before_the_claim, between_claim_and_effect, inside_the_transaction, at_any_moment)


@pytest.mark.parametrize("race", RACES, ids=lambda race: race.__name__)
def test_no_effect_is_committed_after_the_authority_for_it_went(stage: Stage, diary: Diary, race: Race) -> None:
    race(stage, diary, ROUNDS)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("race", RACES, ids=lambda race: race.__name__)
def test_no_effect_is_committed_after_the_authority_for_it_went_in_many_rounds(
    stage: Stage, diary: Diary, race: Race
) -> None:
    race(stage, diary, LONG)


# what is not a loss by hand


def test_what_expires_while_the_last_lock_is_waited_for_counts_no_longer(stage: Stage) -> None:
    assert any(expired_meanwhile(stage, seconds) for seconds in (0.2, 1, 5)), "it was too slow to see anything"


def expired_meanwhile(stage: Stage, seconds: float) -> bool:
    """Let a right expire so many seconds from now, while the worker that has seen it waits for the last thing that it locks.
    Returns whether the worker came in time to see it."""
    case, database = Case("assign_role", "the right to the step is revoked"), stage.acme.database
    stage.set_up([case])
    stage.starts([case])
    live = "SELECT 1 FROM role_assignments WHERE id = :id AND expires_at > clock_timestamp()"
    expire = "UPDATE role_assignments SET expires_at = clock_timestamp() + make_interval(secs => :in) WHERE id = :id"
    with a_racer(database) as racer:
        work = racer.sets_out(stage.acme, BETWEEN)
        racer.stopped(work)
        with database.owner_engine.begin() as blocker:
            blocker.exec_driver_sql("SELECT 1 FROM organizations WHERE id = %s FOR UPDATE", (stage.sales,))
            owner(database, expire, id=case.rights, **{"in": seconds})
            racer.goes_on()
            racer.waits_for_a_row(work)
            in_time = bool(rows(database, live, id=case.rights))
            until(lambda: not rows(database, live, id=case.rights))
        work.result(30)
    assert outcome(stage.acme, case.run) == ("failed", "publisher_lacks_authority")
    return in_time


@pytest.mark.parametrize("loss_first", [True, False])
@pytest.mark.parametrize(
    ("lose", "of"),
    [
        (step("suspend_user"), "users"),
        (step("remove_role", scope="organization"), "role_assignments"),
        (step("remove_membership", organization_id=...), "memberships"),
    ],
    ids=lambda each: each["type"] if isinstance(each, dict) else "",
)
def test_of_two_runs_in_one_transaction_the_second_sees_what_the_first_took_away(
    stage: Stage, diary: Diary, lose: Json, of: str, loss_first: bool
) -> None:
    """One run is about the publisher of the other. In a round they are decided in the order of their ids."""
    case = Case("assign_role", "the publisher leaves the organization, and a role with it")
    stage.set_up([case])
    if lose["type"] == "remove_role":
        lose = {**lose, "role_id": stage.org_rights}
    workflow = stage.acme.published(definition(lose))
    if loss_first:
        stage.acme.run(workflow, case.publisher, stage.sales)
        stage.starts([case])
    else:
        stage.starts([case])
        stage.acme.run(workflow, case.publisher, stage.sales)
    diary.forget()
    with working(stage.acme.database) as worker:
        drain(worker, stage.acme)
    expected = ("failed", "publisher_lacks_authority") if loss_first else ("succeeded", None)
    assert outcome(stage.acme, case.run) == expected
    (lost,) = [each for each in diary.entries() if each.user_id == case.publisher and each.of == of]
    assert lost.xid in {
        each.xid for each in diary.entries() if each.row.get("run_id") == case.run
    }  # it was one transaction


def test_the_authority_of_whoever_approved_is_held_on_to_like_the_publisher_s(stage: Stage, diary: Diary) -> None:
    """A role that requires approval rests on its approver, too: what they lose before the commit, it is not given for."""
    acme, stops = stage.acme, [BEFORE, BETWEEN, *range(1, 22, 3), ENDING]
    role = acme.role(None, "org.members.read", requires_approval=True)
    approvers, subjects = acme.users(len(stops), stage.sales), acme.users(len(stops), stage.sales)
    rights = [acme.grant(each, stage.org_rights, stage.sales) for each in approvers]
    asked = step("approval", id="ask", approvers=approvers)
    workflow = acme.published(definition(asked, step("assign_role", role_id=role, organization_id=..., expires_in=...)))
    runs = [acme.run(workflow, each, stage.sales)[0] for each in subjects]
    with a_racer(acme.database) as racer, ThreadPoolExecutor(1) as thread:
        racer.thread.submit(drain, racer.worker, acme).result()
        for at, approver, right, run in zip(stops, approvers, rights, runs, strict=True):
            with acme.database.begin() as connection:
                approvals.decide(connection, acme.by(approver), approval_of(acme, run).id, "approve")
            work = racer.sets_out(acme, at)
            racer.stopped(work)
            losing = thread.submit(by_hand, stage, right)
            until(lambda losing=losing: losing.done() or waiting(racer.watch, HANDS))  # type: ignore[misc]
            racer.goes_on()
            for each in (work, losing):
                each.result(30)
    entries, outcomes = diary.entries(), Counter[str]()
    for approver, subject, run in zip(approvers, subjects, runs, strict=True):
        (lost,) = [each for each in entries if each.user_id == approver and each.did == "DELETE"]
        given = [each for each in entries if each.user_id == subject and each.of == "role_assignments"]
        refused = [each for each in entries if each.row.get("run_id") == run and each.row.get("state") == "failed"]
        assert [each.place < lost.place for each in given] + [each.place > lost.place for each in refused] == [True]
        assert outcome(acme, run) == (("succeeded", None) if given else ("failed", "forbidden"))
        outcomes[run_of(acme, run).state] += 1
    assert outcomes.keys() == {"succeeded", "failed"}


BY_STATEMENT = {
    "an assignment": "DELETE FROM role_assignments WHERE id = :rights",
    "a role": "UPDATE roles SET permissions = '{realm.users.read}' WHERE id = :role",
    "a user": "UPDATE users SET state = 'suspended', suspended_at = now() WHERE id = :publisher",
}


@pytest.mark.parametrize("what", BY_STATEMENT)
def test_not_even_a_statement_beside_the_engine_takes_away_what_an_effect_rests_on(stage: Stage, what: str) -> None:
    case = Case("suspend_user", "the right to the step is revoked")
    stage.set_up([case])
    stage.starts([case])
    given = {"rights": case.rights, "role": stage.rights, "publisher": case.publisher}
    needed = {name: value for name, value in given.items() if f":{name}" in BY_STATEMENT[what]}
    with a_racer(stage.acme.database) as racer, ThreadPoolExecutor(1) as thread:
        work = racer.sets_out(stage.acme, ENDING)
        racer.stopped(work)
        losing = thread.submit(owner, stage.hands, BY_STATEMENT[what], **needed)
        until(lambda: losing.done() or waiting(racer.watch, f"{HANDS} migration"))
        assert not losing.done()
        racer.goes_on()
        for each in (work, losing):
            each.result(30)
    assert outcome(stage.acme, case.run) == ("succeeded", None)


def by_hand(stage: Stage, assignment_id: str) -> None:
    """The administrator revokes it."""
    with stage.hands.begin() as connection:
        assignments.revoke(connection, stage.acme.cause, assignment_id)


# what the verdict is worth


def test_the_diary_has_the_order_of_the_commits_not_of_the_writes(stage: Stage, diary: Diary) -> None:
    first, second = stage.acme.users(2)
    diary.forget()
    with stage.acme.database.begin() as early:
        users.suspend(early, stage.acme.cause, first)
        with stage.acme.database.begin() as late:
            users.suspend(late, stage.acme.cause, second)
    assert [entry.user_id for entry in diary.entries()] == [second, first]
    trail = "SELECT target_id FROM audit_events WHERE type = 'user.suspended' ORDER BY position"
    assert [row.target_id for row in rows(stage.acme.database, trail)] == [first, second]


def without_locks(text: str) -> str:
    """The statement of a worker that looks, and does not hold on to what it has seen."""
    return re.sub(r" FOR SHARE OF (users|groups|role_assignments)$", "", text)


@pytest.mark.parametrize(("rewrite", "caught"), [(without_locks, True), (str, False)], ids=["locks nothing", "is ours"])
def test_a_worker_that_locks_nothing_is_caught_whatever_is_lost(
    stage: Stage, diary: Diary, rewrite: Callable[[str], str], caught: bool
) -> None:
    losses = [Loss(stage, Case("add_to_group", way), "lost") for way in WAYS]
    stage.set_up([loss.case for loss in losses])
    with a_racer(stage.acme.database, rewrite=rewrite) as racer:
        scene(stage, racer, losses, ENDING)
    wrong, outcomes = verdict(stage, diary, losses)
    assert outcomes == {("lost", True): len(WAYS)}
    assert {each.removesuffix(" without authority").split(": ")[0] for each in wrong} == {
        str(loss.case) for loss in losses if caught
    }
