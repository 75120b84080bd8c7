"""How a workflow fares: figures of its last runs, and never whom they were about."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from engine.core import ids
from engine.core.ids import Prefix
from engine.lifecycle.diagnostics import health, percentile
from engine.lifecycle.worker import Worker
from tests.calling import Api, problem
from tests.definitions import Json, definition, step
from tests.driver import attempts_of, drain, many_runs, owner, run_of
from tests.factories import a_realm

EMPTY: Json = {
    "health": "unknown",
    "runs": 0,
    "runs_by_state": {},
    "attempts": 0,
    "failures": 0,
    "failure_categories": {},
    "last_failures": [],
    "compensation_failures": 0,
    "p50_seconds": None,
    "p95_seconds": None,
    "pending_approvals": 0,
    "oldest_due_run": None,
}


@pytest.fixture
def alone(api: Api) -> Api:
    """The administrator of a realm of the test's own."""
    return api.at(a_realm(api.realm.database))


def diagnosed(api: Api, workflow_id: str) -> Any:
    answer = api.get(f"/workflows/{workflow_id}/diagnostics")
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.fixture
def wrong(alone: Api) -> Json:
    """A step that fails for good: no subject is a member of that organization."""
    elsewhere = alone.realm.organization()
    return step("add_to_group", id="wrong", group_id=alone.realm.group(elsewhere), organization_id=elsewhere)


def history(
    api: Api, workflow_id: str, runs: int, attempts: int, *, state: str = "succeeded", seconds: int = 10
) -> None:
    """Finished runs that took that long, the latest an hour ago, each with attempts that ended in that state."""
    given = {
        "realm": api.realm.id,
        "workflow": workflow_id,
        "admin": api.realm.admin,
        "prefix": ids.new(Prefix.RUN)[:20],
    }
    ended = "failed" if state == "failed" else "succeeded"
    owner(
        api.realm.database,
        f"""INSERT INTO workflow_runs (realm_id, id, workflow_id, revision, publisher_id, subject_id, trigger_type,
              trigger_key, input, input_version, state, created_at, finished_at, due_at)
            SELECT :realm, :prefix || lpad(i::text, 10, '0'), :workflow, 1, :admin, :admin, 'manual',
              'manual:' || :prefix || i, '{{}}', 1, '{ended}', now() - interval '1 h' - make_interval(secs => {runs} - i),
              now() - interval '1 h' - make_interval(secs => {runs} - i - {seconds}), NULL
            FROM generate_series(1, {runs}) i""",
        **given,
    )
    given.pop("workflow"), given.pop("admin")
    owner(
        api.realm.database,
        f"""INSERT INTO workflow_step_attempts (realm_id, run_id, step_index, attempt, id, step_id, step_type, state,
              idempotency_key, input, input_version, max_attempts, backoff_ms, started_at, finished_at, error_category)
            SELECT realm_id, id, k, 1, 'wsa_' || right(id, 22) || k, 'old', 'end', '{state}', id || k, '{{}}', 'r1', 3, 1,
              created_at + make_interval(secs => k), created_at + make_interval(secs => k),
              CASE WHEN '{state}' = 'failed' THEN 'timeout' END
            FROM workflow_runs, generate_series(1, {attempts}) k WHERE realm_id = :realm AND id LIKE :prefix || '%'""",
        **given,
    )


def test_of_a_workflow_without_runs_nothing_is_known(alone: Api) -> None:
    assert diagnosed(alone, alone.realm.workflow()) == EMPTY


def test_runs_are_counted_by_state_and_attempts_by_why_they_failed(alone: Api, worker: Worker, wrong: Json) -> None:
    role = alone.realm.role(None, "realm.users.read", boundary="realm")
    grant = step("assign_role", id="grant", role_id=role, scope="realm", organization_id=...)
    workflow = alone.realm.published(definition(grant, wrong))
    runs = many_runs(alone.realm, workflow, alone.realm.users(3))
    drain(worker, alone.realm)
    found = diagnosed(alone, workflow)
    assert (found["runs"], found["runs_by_state"]) == (3, {"compensated": 3})
    assert (found["attempts"], found["failures"]) == (6, 3)
    assert found["failure_categories"] == {"not_a_member": 3}
    assert (found["health"], found["compensation_failures"]) == ("degraded", 0)
    assert {each["run_id"] for each in found["last_failures"]} == set(runs)
    assert {(each["step_id"], each["error_category"]) for each in found["last_failures"]} == {("wrong", "not_a_member")}
    moments = [datetime.fromisoformat(each["failed_at"]) for each in found["last_failures"]]
    assert set(moments) == {attempts_of(alone.realm, run)[1].finished_at for run in runs}


def test_it_shows_neither_subjects_nor_what_was_given_to_steps_or_came_of_them(
    alone: Api, worker: Worker, wrong: Json
) -> None:
    workflow = alone.realm.published(definition(step("notify", id="tell", recipients=...), wrong))
    ada = alone.realm.user()
    alone.realm.run(workflow, ada)
    drain(worker, alone.realm)
    text = alone.get(f"/workflows/{workflow}/diagnostics").text
    for part in ("usr_", "grp_", "org_", "ntf_", "recipients", "changed", "input", "result"):
        assert part not in text, part


def test_a_workflow_whose_attempts_succeed_is_healthy_and_says_how_long_runs_take(alone: Api, worker: Worker) -> None:
    workflow = alone.realm.published(definition(step("end")))
    runs = many_runs(alone.realm, workflow, alone.realm.users(20))
    drain(worker, alone.realm)
    for number, run in enumerate(runs, 1):
        owner(
            alone.realm.database,
            "UPDATE workflow_runs SET finished_at = created_at + make_interval(secs => :secs) WHERE id = :id",
            id=run,
            secs=number,
        )
    found = diagnosed(alone, workflow)
    assert (found["health"], found["attempts"], found["failures"]) == ("healthy", 20, 0)
    assert (found["p50_seconds"], found["p95_seconds"]) == (10.0, 19.0)


def test_a_compensation_that_failed_asks_for_a_person_though_all_else_goes_well(
    alone: Api, worker: Worker, wrong: Json
) -> None:
    """Taking the role back would leave the organization without an owner."""
    sales, ada = alone.realm.organization(), alone.realm.user()
    alone.realm.add_members(sales, [ada])
    own = step("assign_role", id="own", role_id=alone.realm.roles["org-owner"], organization_id=...)
    workflow = alone.realm.published(definition(own, wrong))
    run, _ = alone.realm.run(workflow, ada, sales)
    drain(worker, alone.realm)
    assert run_of(alone.realm, run).state == "compensation_failed"
    found = diagnosed(alone, workflow)
    assert (found["health"], found["compensation_failures"]) == ("attention_required", 1)
    history(alone, workflow, 300, 4)
    assert diagnosed(alone, workflow)["health"] == "attention_required", "as long as it is among the last 500 runs"
    history(alone, workflow, 500, 1)
    assert diagnosed(alone, workflow)["health"] == "healthy"


def test_only_the_last_500_runs_and_1000_attempts_count(alone: Api) -> None:
    workflow = alone.realm.published(definition(step("end")))
    history(alone, workflow, 400, 2, state="failed", seconds=600)
    found = diagnosed(alone, workflow)
    assert (found["runs"], found["attempts"], found["failures"]) == (400, 800, 800)
    assert len(found["last_failures"]) == 20
    assert found["p50_seconds"] == 600.0
    history(alone, workflow, 450, 2)
    found = diagnosed(alone, workflow)
    assert (found["runs"], found["runs_by_state"]) == (500, {"succeeded": 450, "failed": 50})
    assert found["p50_seconds"] == 10.0
    assert (found["attempts"], found["failures"], found["health"]) == (1000, 100, "healthy")
    assert found["failure_categories"] == {"timeout": 100}
    history(alone, workflow, 499, 3)
    found = diagnosed(alone, workflow)
    assert (found["runs"], found["attempts"], found["failures"]) == (500, 1000, 0)


def test_the_run_that_is_due_longest_is_told_until_a_worker_takes_it(alone: Api, worker: Worker) -> None:
    workflow = alone.realm.published(definition(step("wait"), step("end", id="b")))
    first, second = many_runs(alone.realm, workflow, alone.realm.users(2))
    moved = "UPDATE workflow_runs SET due_at = clock_timestamp() - :by WHERE id = :id"
    owner(alone.realm.database, moved, id=second, by=timedelta(hours=2))
    owner(alone.realm.database, moved, id=first, by=timedelta(hours=1))
    found = diagnosed(alone, workflow)
    assert found["oldest_due_run"]["id"] == second
    assert datetime.fromisoformat(found["oldest_due_run"]["due_at"]) == run_of(alone.realm, second).due_at
    other = alone.realm.published(definition(step("end")))
    assert diagnosed(alone, other)["oldest_due_run"] is None
    drain(worker, alone.realm)
    found = diagnosed(alone, workflow)
    assert (found["oldest_due_run"], found["runs_by_state"]) == (None, {"waiting": 2})
    owner(alone.realm.database, moved, id=first, by=timedelta(hours=1))
    assert diagnosed(alone, workflow)["oldest_due_run"] is None, "a wait that is over is no run that was left lying"


def test_a_run_that_is_due_is_found_behind_any_number_of_later_ones(alone: Api) -> None:
    workflow = alone.realm.published(definition(step("end")))
    (lost,) = many_runs(alone.realm, workflow, [alone.realm.user()])
    history(alone, workflow, 600, 1)
    owner(alone.realm.database, "UPDATE workflow_runs SET id = 'wrn_0' || substr(id, 6) WHERE id = :id", id=lost)
    found = diagnosed(alone, workflow)
    assert "pending" not in found["runs_by_state"]
    assert found["oldest_due_run"]["id"] == f"wrn_0{lost[5:]}"


def test_decisions_that_are_waited_for_are_counted(alone: Api, worker: Worker) -> None:
    approver = alone.realm.user()
    workflow, other = (
        alone.realm.published(definition(step("approval", approvers=[approver]), step("end", id="b"))) for _ in range(2)
    )
    many_runs(alone.realm, workflow, alone.realm.users(3))
    many_runs(alone.realm, other, alone.realm.users(1))
    drain(worker, alone.realm)
    assert diagnosed(alone, workflow)["pending_approvals"] == 3
    decider = alone.by(approver, "account")
    decided = decider.get("/me/workflow-approvals").json()["items"]
    (one, *_) = [each["id"] for each in decided if each["workflow_id"] == workflow]
    assert decider.post(f"/me/workflow-approvals/{one}/approve").status_code == 200
    assert diagnosed(alone, workflow)["pending_approvals"] == 2
    assert diagnosed(alone, other)["pending_approvals"] == 1


def test_a_workflow_of_another_realm_has_no_figures(alone: Api, worker: Worker) -> None:
    other = a_realm(alone.realm.database)
    theirs = other.published(definition(step("end")))
    many_runs(other, theirs, other.users(2))
    refused = problem(alone.get(f"/workflows/{theirs}/diagnostics"), 404, "not_found")
    assert refused == problem(alone.get(f"/workflows/{ids.new(Prefix.WORKFLOW)}/diagnostics"), 404, "not_found")


@pytest.mark.parametrize(
    ("attempts", "failures", "stuck", "expected"),
    [
        (0, 0, 0, "unknown"),
        (1, 0, 0, "healthy"),
        (10, 1, 0, "healthy"),
        (1000, 100, 0, "healthy"),
        (1000, 101, 0, "degraded"),
        (9, 1, 0, "degraded"),
        (1, 1, 0, "degraded"),
        (1000, 1000, 1, "attention_required"),
        (1000, 0, 1, "attention_required"),
        (0, 0, 1, "attention_required"),
    ],
)
def test_health_is_told_by_attempts_failures_and_what_is_stuck(
    attempts: int, failures: int, stuck: int, expected: str
) -> None:
    assert health(attempts, failures, stuck) == expected


@pytest.mark.parametrize(
    ("values", "p50", "p95"),
    [
        ([], None, None),
        ([7], 7, 7),
        ([1, 9], 1, 9),
        ([1, 2, 9], 2, 9),
        (range(1, 21), 10, 19),
        (range(1, 501), 250, 475),
    ],
)
def test_a_percentile_is_one_of_the_values(values: Any, p50: float | None, p95: float | None) -> None:
    assert (percentile(list(values), 0.5), percentile(list(values), 0.95)) == (p50, p95)
