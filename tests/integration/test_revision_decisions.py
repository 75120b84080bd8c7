"""Revisions through the API: who may decide about them, what their state table lets happen, and who answers for which run."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from engine.core.errors import Refused
from engine.core.trail import Cause
from engine.directory.permissions import CATALOGUE
from engine.lifecycle import revisions
from engine.lifecycle.definition import parse
from engine.lifecycle.policy import publication_needs_approval
from engine.lifecycle.states import REVISION
from engine.lifecycle.worker import Worker
from tests.authoring import asked, done, rights, shown, staged, started, status_of, trail, workflow
from tests.calling import Api, paths, problem
from tests.definitions import Json, definition, event, id_of, schedule, step
from tests.driver import age, attempts_of, drain, outcome, owner, rows, run_of
from tests.factories import TestRealm, a_realm, unique

PUBLISHING = ("realm.workflows.write", "realm.workflows.publish", "realm.workflows.run")


@pytest.fixture
def boss(api: Api, acme: TestRealm) -> Api:
    """The administrator of a realm of the test's own."""
    return api.at(acme)


def other(boss: Api) -> Api:
    """Another administrator."""
    return boss.by(boss.realm.holder(boss.realm.roles["realm-admin"]))


# the state table

VERBS = ("approve", "reject", "publish", "roll_back")
MOVES = {(source, event_): target for source, event_, target in REVISION.rows if event_ in VERBS}
AUDITED = {
    "approve": "workflow.revision.approved",
    "reject": "workflow.revision.rejected",
    "publish": "workflow.published",
    "roll_back": "workflow.rolled_back",
}
WAY = {
    "draft": (),
    "approved": ("approve",),
    "rejected": ("reject",),
    "published": ("publish",),
    "superseded": ("publish", "supersede"),
}
"""How a revision comes to be in each status."""


def a_revision(boss: Api, status: str) -> tuple[str, int]:
    """A workflow and the number of a revision of it in that status, whose author is somebody else."""
    author = other(boss)
    workflow_id = workflow(author)
    number = staged(author, workflow_id)
    for verb in WAY[status]:
        if verb == "supersede":
            done(asked(boss, "publish", workflow_id, staged(author, workflow_id)))
        else:
            done(asked(boss, verb, workflow_id, number))
    assert status_of(boss, workflow_id, number) == status
    return workflow_id, number


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("status", REVISION.states)
def test_a_revision_moves_as_its_state_table_says_and_in_no_other_way(boss: Api, status: str, verb: str) -> None:
    workflow_id, number = a_revision(boss, status)
    before = trail(boss.realm, workflow_id)
    answer = asked(boss, verb, workflow_id, number)
    target = MOVES.get((status, verb))
    if target is None:
        problem(answer, 409, "conflict")
        assert trail(boss.realm, workflow_id) == before
    else:
        done(answer)
        told = trail(boss.realm, workflow_id)[len(before) :]
        assert [(row.type, row.category, row.actor_id) for row in told] == [
            (AUDITED[verb], "workflow", boss.realm.admin)
        ]
        assert told[0].details["revision"] == number
    assert status_of(boss, workflow_id, number) == (target or status)


def test_the_table_has_no_move_but_those_of_the_api_and_the_one_they_bring_about() -> None:
    assert {event_ for _, event_, _ in REVISION.rows} == {*VERBS, "supersede"}
    assert set(WAY) == set(REVISION.states)


@pytest.mark.parametrize("verb", VERBS)
def test_a_revision_that_is_not_there_is_told_as_such(boss: Api, verb: str) -> None:
    workflow_id, _ = a_revision(boss, "superseded")
    for number in (3, 999_999_999):
        refused = problem(asked(boss, verb, workflow_id, number), 404, "not_found")
        assert [error["path"] for error in refused.get("errors", ())] == (["revision"] if verb == "roll_back" else [])
    problem(asked(boss, verb, id_of("wfl"), 1), 404, "not_found")


@pytest.mark.parametrize("number", [0, -1, 1_000_000_000, 2**31, 10**30, "1", 1.5, True, None, [1]])
def test_a_rollback_names_a_number_that_a_revision_can_have(boss: Api, number: object) -> None:
    workflow_id, _ = a_revision(boss, "superseded")
    assert paths(boss.post(f"/workflows/{workflow_id}/rollback", {"revision": number})) == ["revision"]
    assert paths(boss.post(f"/workflows/{workflow_id}/rollback", {})) == ["revision"]


# decisions


def test_a_decision_names_who_took_it_and_when_and_changes_nothing_else(boss: Api) -> None:
    author, workflow_id = other(boss), workflow(boss)
    number = staged(author, workflow_id)
    before = done(boss.get(f"/workflows/{workflow_id}/revisions/{number}"))
    assert (before["decided_by"], before["decided_at"]) == (None, None)
    approved = done(asked(boss, "approve", workflow_id, number))
    assert approved["decided_at"] >= before["created_at"]
    decision = {"status": "approved", "decided_by": boss.realm.admin, "decided_at": approved["decided_at"]}
    assert approved == {**before, **decision}
    judge = other(boss)
    rejected = done(asked(judge, "reject", workflow_id, number))
    assert (rejected["status"], rejected["author_id"]) == ("rejected", before["author_id"])
    assert rejected["decided_at"] > approved["decided_at"]
    assert rejected["decided_by"] not in (boss.realm.admin, before["author_id"])
    assert [(row.type, row.details) for row in trail(boss.realm, workflow_id)[-2:]] == [
        (f"workflow.revision.{verdict}", {"revision": number, "definition_hash": before["definition_hash"]})
        for verdict in ("approved", "rejected")
    ]
    assert shown(boss, workflow_id)["state"] == "draft"


@pytest.mark.parametrize("verdict", ["approve", "reject"])
@pytest.mark.parametrize("status", ["draft", "approved", "rejected"])
def test_the_author_of_a_revision_decides_nothing_about_it(boss: Api, status: str, verdict: str) -> None:
    author = other(boss)
    workflow_id = workflow(boss)
    number = staged(author, workflow_id)
    for verb in WAY[status]:
        done(asked(boss, verb, workflow_id, number))
    problem(asked(author, verdict, workflow_id, number), 403, "forbidden")
    assert status_of(boss, workflow_id, number) == status
    mine = staged(boss, workflow_id)  # of another's revision in the same workflow the author may decide
    done(asked(author, verdict, workflow_id, mine))


def test_approving_asks_for_no_authority_over_the_steps_but_publishing_does(boss: Api) -> None:
    judge = boss.by(rights(boss.realm, "realm.workflows.publish"))
    workflow_id = workflow(boss, requires_approval=True)
    number = staged(boss, workflow_id, step("suspend_user"))
    done(asked(judge, "approve", workflow_id, number))
    refused = problem(asked(judge, "publish", workflow_id, number), 403, "forbidden")
    assert refused["errors"][0]["path"] == "definition.steps[0]"
    done(asked(boss, "publish", workflow_id, number))  # its author may publish what another has approved


def test_what_a_definition_names_is_looked_up_when_it_is_published_and_not_when_it_is_approved(boss: Api) -> None:
    ada, workflow_id = boss.realm.user(), workflow(boss)
    number = staged(boss, workflow_id, step("approval", approvers=[boss.realm.admin, ada]))
    done(boss.post(f"/users/{ada}/suspend"))
    done(asked(other(boss), "approve", workflow_id, number))
    assert paths(asked(boss, "publish", workflow_id, number)) == ["definition.steps[0].approvers[1]"]


def test_two_who_decide_at_once_take_one_decision_after_the_other(boss: Api) -> None:
    workflow_id, number = a_revision(boss, "draft")
    judges = [other(boss), other(boss)]
    answers: dict[str, int] = {}

    def ask(judge: Api, verdict: str) -> None:
        answers[verdict] = asked(judge, verdict, workflow_id, number).status_code

    together([lambda: ask(judges[0], "approve"), lambda: ask(judges[1], "reject")])
    assert answers["reject"] == 200
    assert answers["approve"] in (200, 409)
    decisions = [row.type for row in trail(boss.realm, workflow_id) if "revision." in row.type][1:]
    approved = ["workflow.revision.approved"] if answers["approve"] == 200 else []
    assert decisions == [*approved, "workflow.revision.rejected"]


def test_of_many_who_publish_at_once_the_last_is_in_force_and_all_others_superseded(boss: Api) -> None:
    workflow_id = workflow(boss)
    numbers = [staged(boss, workflow_id) for _ in range(6)]
    together([lambda number=number: done(asked(boss, "publish", workflow_id, number)) for number in numbers])  # type: ignore[misc]
    published = [row.details["revision"] for row in trail(boss.realm, workflow_id) if row.type == "workflow.published"]
    assert sorted(published) == numbers
    found = {number: status_of(boss, workflow_id, number) for number in numbers}
    assert found == dict.fromkeys(numbers, "superseded") | {published[-1]: "published"}
    assert shown(boss, workflow_id)["published_revision"] == published[-1]


def together(acts: list[Callable[[], object]]) -> None:
    """All at once; fails if one does."""
    failures: list[Exception] = []
    start = threading.Barrier(len(acts))

    def run(act: Callable[[], object]) -> None:
        start.wait(10)
        try:
            act()
        except Exception as failure:
            failures.append(failure)

    threads = [threading.Thread(target=run, args=(act,)) for act in acts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


# approval before publication


def test_a_workflow_that_requires_approval_is_published_from_an_approved_revision_alone(boss: Api) -> None:
    workflow_id = workflow(boss, requires_approval=True)
    number = staged(boss, workflow_id)
    problem(asked(boss, "publish", workflow_id, number), 403, "forbidden")
    done(asked(other(boss), "approve", workflow_id, number))
    done(asked(boss, "publish", workflow_id, number))
    rejected = staged(boss, workflow_id)
    for verdict in ("approve", "reject"):
        done(asked(other(boss), verdict, workflow_id, rejected))
    problem(asked(boss, "publish", workflow_id, rejected), 409, "conflict")
    assert status_of(boss, workflow_id, number) == "published"


def test_going_back_needs_no_second_approval(boss: Api) -> None:
    workflow_id = workflow(boss, requires_approval=True)
    for _ in range(2):
        number = staged(boss, workflow_id)
        done(asked(other(boss), "approve", workflow_id, number))
        done(asked(boss, "publish", workflow_id, number))
    done(asked(boss, "roll_back", workflow_id, 1))
    assert [status_of(boss, workflow_id, number) for number in (1, 2)] == ["published", "superseded"]


def set_policy(realm: TestRealm, demands: bool) -> None:
    change = "UPDATE realms SET workflow_publish_approval = :demands WHERE id = :realm"
    owner(realm.database, change, demands=demands, realm=realm.id)


@pytest.mark.parametrize("requested", [True, False, None])
@pytest.mark.parametrize("policy", [True, False])
def test_the_stricter_of_request_and_policy_counts(boss: Api, policy: bool, requested: bool | None) -> None:
    set_policy(boss.realm, policy)
    body: Json = {"name": unique("w")} | ({} if requested is None else {"requires_approval": requested})
    assert done(boss.post("/workflows", body), 201)["requires_approval"] is (policy or bool(requested))


@pytest.mark.parametrize("policy", [True, False])
def test_a_policy_that_changes_later_changes_no_workflow_that_is_there(boss: Api, policy: bool) -> None:
    set_policy(boss.realm, policy)
    workflow_id = workflow(boss, requires_approval=False)
    set_policy(boss.realm, not policy)
    assert shown(boss, workflow_id)["requires_approval"] is policy
    answer = asked(boss, "publish", workflow_id, staged(boss, workflow_id))
    assert answer.status_code == (403 if policy else 200)
    assert paths(boss.patch(f"/workflows/{workflow_id}", {"requires_approval": not policy})) == ["requires_approval"]


def test_a_policy_that_is_not_there_demands_approval(acme: TestRealm) -> None:
    with acme.database.begin() as connection:
        assert publication_needs_approval(connection, id_of("rlm"), False) is True
        assert publication_needs_approval(connection, acme.id, False) is False


# who answers


def test_runs_in_flight_keep_revision_and_publisher_and_new_ones_have_the_new(boss: Api, worker: Worker) -> None:
    realm = boss.realm
    subjects, holders = realm.users(3), [realm.holder(realm.roles["realm-admin"]) for _ in range(3)]
    callers = [boss.by(user_id) for user_id in holders]
    workflow_id, runs = workflow(boss), []

    def start(number: int) -> None:
        runs.append(started(boss, workflow_id, subjects[number]))
        drain(worker, realm)

    wait = step("wait", id="w")
    first = staged(boss, workflow_id, wait, step("suspend_user", id="first"))
    done(asked(callers[0], "publish", workflow_id, first))
    start(0)
    second = staged(boss, workflow_id, wait, step("notify", id="second", recipients=...))
    done(asked(callers[1], "publish", workflow_id, second))
    start(1)
    done(asked(callers[2], "roll_back", workflow_id, first))
    start(2)
    for run in runs:
        age(realm, run, hours=1)
    drain(worker, realm)
    ended = [done(boss.get(f"/workflow-runs/{run}")) for run in runs]
    assert [(run["revision"], run["publisher_id"], run["state"]) for run in ended] == [
        (first, holders[0], "succeeded"),
        (second, holders[1], "succeeded"),
        (first, holders[2], "succeeded"),
    ]
    assert [attempts_of(realm, run)[-1].step_id for run in runs] == ["first", "second", "first"]
    assert [attempts_of(realm, run)[-1].input_version.split(":")[0] for run in runs] == ["r1", "r2", "r1"]
    suspensions = [
        [row.actor_id for row in trail(realm, subject) if row.type == "user.suspended"] for subject in subjects
    ]
    assert suspensions == [[holders[0]], [], [holders[2]]]


def test_a_run_in_flight_keeps_failing_on_its_publishers_lost_authority_though_another_has_published(
    boss: Api, worker: Worker
) -> None:
    realm = boss.realm
    publisher, ada = realm.holder(realm.roles["realm-admin"]), realm.user()
    workflow_id = workflow(boss)
    number = staged(boss, workflow_id, step("wait"), step("suspend_user", id="b"))
    done(asked(boss.by(publisher), "publish", workflow_id, number))
    run = started(boss, workflow_id, ada)
    drain(worker, realm)
    done(asked(boss, "publish", workflow_id, staged(boss, workflow_id)))
    realm.revoke(publisher, realm.roles["realm-admin"])
    done(asked(boss, "roll_back", workflow_id, number))
    age(realm, run, hours=1)
    drain(worker, realm)
    assert outcome(realm, run) == ("failed", "publisher_lacks_authority")
    assert run_of(realm, run).publisher_id == publisher


def test_whoever_rolls_back_is_the_publisher_from_then_on(boss: Api) -> None:
    workflow_id, number = a_revision(boss, "superseded")
    first = done(boss.get(f"/workflows/{workflow_id}/revisions/{number}"))
    anchor = shown(boss, workflow_id)["first_published_at"]
    successor = boss.realm.holder(boss.realm.roles["realm-admin"])
    after = done(asked(boss.by(successor), "roll_back", workflow_id, number))
    assert (after["state"], after["published_revision"], after["publisher_id"]) == ("active", number, successor)
    assert after["first_published_at"] == anchor
    again = done(boss.get(f"/workflows/{workflow_id}/revisions/{number}"))
    assert (again["status"], again["published_by"]) == ("published", successor)
    assert again["published_at"] > first["published_at"]
    assert {name for name in again if again[name] != first[name]} == {"status", "published_by", "published_at"}
    told = trail(boss.realm, workflow_id)[-1]
    assert (told.type, told.actor_id) == ("workflow.rolled_back", successor)
    assert told.details == {"revision": number, "definition_hash": again["definition_hash"], "superseded": 2}


def test_what_fires_after_a_rollback_is_what_the_old_revision_says(boss: Api, worker: Worker) -> None:
    realm = boss.realm
    drain(worker, realm)
    role = realm.role(None, "realm.users.read", boundary="realm")
    every = schedule("role_holders", "1h", role_id=role, organization_id=..., granted_before=...)
    workflow_id = workflow(boss)
    for trigger in (event("user.created"), event("user.suspended")):
        number = staged(boss, workflow_id, triggers=[trigger, every] if trigger == event("user.created") else [trigger])
        done(asked(boss, "publish", workflow_id, number))
    done(asked(boss, "roll_back", workflow_id, 1))
    ada = realm.user(state="suspended")
    drain(worker, realm)
    found = rows(realm.database, "SELECT * FROM workflow_runs WHERE workflow_id = :id", id=workflow_id)
    assert [(run.revision, run.event_type, run.subject_id) for run in found] == [(1, "user.created", ada)]
    (slot,) = rows(realm.database, "SELECT * FROM schedule_triggers WHERE workflow_id = :id", id=workflow_id)
    (row,) = rows(realm.database, "SELECT first_published_at FROM workflows WHERE id = :id", id=workflow_id)
    assert (slot.next_slot_at - row.first_published_at).total_seconds() == 3600


# the guard on going back (FAULTS.md, 17)


def beyond(realm: TestRealm, kind: str) -> tuple[Json, str]:
    """A step that an administrator of workflows alone could not do by hand, and the code of the refusal."""
    if kind == "suspend_user":
        return step("suspend_user", id="b"), "forbidden"
    role = realm.role(None, "realm.users.write", boundary="realm")
    return (
        step("assign_role", id="b", role_id=role, scope="realm", organization_id=..., expires_in=...),
        "grant_ceiling_exceeded",
    )


@pytest.mark.parametrize("kind", ["suspend_user", "assign_role"])
def test_a_weaker_administrator_cannot_go_back_to_what_a_stronger_one_published(boss: Api, kind: str) -> None:
    realm = boss.realm
    strong, code = beyond(realm, kind)
    weaker = rights(realm, *PUBLISHING, "realm.roles.assign")
    workflow_id = workflow(boss)
    number = staged(boss, workflow_id, step("wait"), strong)
    done(asked(boss, "publish", workflow_id, number))
    harmless = staged(boss, workflow_id)
    done(asked(boss.by(weaker), "publish", workflow_id, harmless))
    before = (shown(boss, workflow_id), trail(realm, workflow_id))
    refused = problem(asked(boss.by(weaker), "roll_back", workflow_id, number), 403, code)
    assert refused["errors"][0]["path"] == "definition.steps[1]"
    assert (shown(boss, workflow_id), trail(realm, workflow_id)) == before
    assert [status_of(boss, workflow_id, each) for each in (number, harmless)] == ["superseded", "published"]
    done(asked(boss, "roll_back", workflow_id, number))


def test_a_revision_that_names_what_is_gone_is_not_gone_back_to(boss: Api) -> None:
    ada, workflow_id = boss.realm.user(), workflow(boss)
    number = staged(boss, workflow_id, step("approval", approvers=[ada]))
    for each in (number, staged(boss, workflow_id)):
        done(asked(boss, "publish", workflow_id, each))
    done(boss.post(f"/users/{ada}/suspend"))
    assert paths(asked(boss, "roll_back", workflow_id, number)) == ["definition.steps[0].approvers[0]"]
    assert status_of(boss, workflow_id, number) == "superseded"


# a machine answers for nothing

MACHINES = [("service_principal", "spn_01jbh0ybgaravg3xcq0zdp2eg0"), ("service_principal", None), ("system", None)]


@pytest.mark.parametrize(("kind", "id_"), MACHINES)
def test_whoever_is_no_user_stages_decides_and_publishes_nothing(acme: TestRealm, kind: str, id_: str | None) -> None:
    machine = Cause(acme.id, kind, id_)
    workflow_id = acme.published(definition())
    successor, draft = (acme.revision(workflow_id, definition()) for _ in range(2))
    with acme.database.begin() as connection:
        revisions.publish(connection, acme.cause, workflow_id, successor)
    verbs: list[Callable[[Any], object]] = [
        lambda connection: revisions.add(connection, machine, workflow_id, parse(definition())),
        lambda connection: revisions.decide(connection, machine, workflow_id, draft, "approve"),
        lambda connection: revisions.decide(connection, machine, workflow_id, draft, "reject"),
        lambda connection: revisions.publish(connection, machine, workflow_id, draft),
        lambda connection: revisions.roll_back(connection, machine, workflow_id, 1),
    ]
    before = trail(acme, workflow_id)
    for verb in verbs:
        with pytest.raises(Refused) as refusal, acme.database.begin() as connection:
            verb(connection)
        assert refusal.value.category == "forbidden"
    assert trail(acme, workflow_id) == before


def test_a_user_who_holds_all_but_the_permission_to_publish_decides_nothing(boss: Api) -> None:
    nearly = boss.by(rights(boss.realm, *sorted(set(CATALOGUE) - {"realm.workflows.publish"})))
    workflow_id, number = a_revision(boss, "draft")
    for verb in VERBS:
        problem(asked(nearly, verb, workflow_id, number), 403, "forbidden")


def test_a_workflow_of_another_realm_is_decided_about_by_nobody_here(boss: Api) -> None:
    there = a_realm(boss.realm.database)
    workflow_id = there.workflow()
    number = there.revision(workflow_id, definition())
    for verb in VERBS:
        problem(asked(boss, verb, workflow_id, number), 404, "not_found")
    (row,) = rows(there.database, "SELECT status FROM workflow_revisions WHERE workflow_id = :id", id=workflow_id)
    assert row.status == "draft"
