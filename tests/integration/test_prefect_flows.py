"""Prefect hosts the engine: one whole stack for all of these, with a real Prefect server, host, flow processes and engine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from sqlalchemy import text

from cli.stack import ROOT, Stack, StackSettings
from engine.core import shifts
from tests.database import server_folder
from tests.definitions import definition, step
from tests.factories import a_realm

pytestmark = [pytest.mark.prefect, pytest.mark.timeout(400)]

ADVANCE, FIRE, CLEAN = "advance-runs/shift", "fire-schedules/shift", "clean-history/daily"
Json = dict[str, Any]


class Prefect:
    """What a test asks the Prefect server, over its API as anybody may."""

    def __init__(self, url: str) -> None:
        self.http = httpx.Client(base_url=url, timeout=30, trust_env=False)

    def ask(self, method: str, path: str, body: Json | None = None) -> Any:
        """One request; again while the server says that it is busy (its SQLite is locked, or it has just started)."""
        for _ in range(20):
            answer = self.http.request(method, path, json=body)
            if answer.status_code != 503:
                break
            time.sleep(0.5)
        answer.raise_for_status()
        return answer.json() if answer.content else None

    def post(self, path: str, body: Json | None = None) -> Any:
        return self.ask("POST", path, body or {})

    def deployment(self, name: str) -> Json:
        found: Json = self.ask("GET", f"/deployments/name/{name}")
        return found

    def start(self, name: str, **parameters: Any) -> str:
        """A run of the deployment, at once. Its id."""
        body = {"parameters": parameters, "state": {"type": "SCHEDULED"}}
        return str(self.post(f"/deployments/{self.deployment(name)['id']}/create_flow_run", body)["id"])

    def run(self, run_id: str) -> Json:
        found: Json = self.ask("GET", f"/flow_runs/{run_id}")
        return found

    def state(self, run_id: str) -> str:
        """Like `Completed: relieved: 3 passes, ...`"""
        state = self.run(run_id)["state"]
        return f"{state['name']}: {state['message'] or ''}"

    def runs_of(self, name: str, state: str) -> list[Json]:
        """Runs of the deployment in that type of state, oldest first."""
        of = {"deployment_id": {"any_": [self.deployment(name)["id"]]}, "state": {"type": {"any_": [state]}}}
        found: list[Json] = self.post("/flow_runs/filter", {"flow_runs": of, "sort": "EXPECTED_START_TIME_ASC"})
        return found

    def set_state(self, run_id: str, kind: str, name: str) -> None:
        self.post(f"/flow_runs/{run_id}/set_state", {"state": {"type": kind, "name": name}, "force": True})

    def events(self, prefix: str) -> list[Json]:
        since, until = ((datetime.now(UTC) + timedelta(days=days)).isoformat() for days in (-1, 1))
        wanted = {"event": {"prefix": [prefix]}, "occurred": {"since": since, "until": until}}
        found: list[Json] = self.post("/events/filter", {"filter": wanted, "limit": 50})["events"]
        return found


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    with server_folder() as folder, Stack(StackSettings(folder, api_port=0, prefect_port=0)) as started:
        yield started


@pytest.fixture(scope="module")
def prefect(stack: Stack) -> Iterator[Prefect]:
    asked = Prefect(stack.addresses.prefect_api)
    with asked.http:
        yield asked


def until(holds: Callable[[], object], within: float = 60) -> None:
    """Poll until it holds."""
    deadline = time.monotonic() + within
    while not (held := holds()):
        assert time.monotonic() < deadline, f"it did not come to hold in time, but was {held!r}"
        time.sleep(0.1)


def silence(stack: Stack, deployment: str) -> float:
    """Seconds since the last pass of the deployment's shifts."""
    statement = text(
        "SELECT extract(epoch FROM clock_timestamp() - max(last_pass_at)) FROM shifts WHERE deployment = :deployment"
    )
    with stack.database.begin() as connection:
        return float(connection.execute(statement, {"deployment": deployment}).scalar_one())


def shift_of(stack: Stack, run_id: str) -> tuple[str, str | None]:
    """Owner and end of the shift that a flow run hosts."""
    with stack.database.begin() as connection:
        statement = text("SELECT owner, ended_how FROM shifts WHERE flow_run_id = :run")
        owner, ended_how = connection.execute(statement, {"run": run_id}).one()
        return owner, ended_how


def a_shift_at_work(prefect: Prefect, stack: Stack) -> str:
    """The flow run of the youngest shift of the worker, which has made a pass."""
    until(lambda: shifts.at_work(stack.database, "advance-runs") and prefect.runs_of(ADVANCE, "RUNNING"))
    run_id = str(prefect.runs_of(ADVANCE, "RUNNING")[-1]["id"])
    until(lambda: shifts.of_flow_run(stack.database, run_id))
    return run_id


def test_a_run_is_advanced_and_operators_see_ids_only(prefect: Prefect, stack: Stack) -> None:
    acme = a_realm(stack.database)
    ada = acme.user("ada.lovelace")
    workflow = acme.published(definition(step("suspend_user"), step("end", id="z")))
    run_id, _ = acme.run(workflow, ada)
    until(lambda: prefect.events("engine.run.succeeded"))
    (event,) = prefect.events("engine.run.succeeded")
    related = {each["prefect.resource.role"]: each["prefect.resource.id"] for each in event["related"]}
    assert event["resource"]["prefect.resource.id"] == f"engine.run.{run_id}"
    assert related["workflow"] == f"engine.workflow.{workflow}"
    assert related["flow-run"].startswith("prefect.flow-run.")
    until(lambda: any("claimed 1" in each["name"] for each in prefect.post("/task_runs/filter")))
    until(lambda: any("Pass" in each["message"] for each in prefect.post("/logs/filter")))
    for path in ("/flow_runs/filter", "/task_runs/filter", "/logs/filter", "/artifacts/filter"):
        assert "lovelace" not in json.dumps(prefect.post(path)).lower()
    assert "lovelace" not in json.dumps(prefect.events("engine.")).lower()


def test_deploying_again_doubles_nothing(prefect: Prefect, stack: Stack) -> None:
    environment = {
        **os.environ,
        "PREFECT_API_URL": stack.addresses.prefect_api,
        "PREFECT_HOME": str(stack.addresses.data_dir),
    }
    subprocess.run([sys.executable, "-m", "flows.deploy"], cwd=ROOT, env=environment, check=True, capture_output=True)
    deployments = prefect.post("/deployments/filter")
    assert sorted(each["entrypoint"] for each in deployments) == [
        "flows.advance_runs.advance_runs",
        "flows.clean_history.clean_history",
        "flows.fire_schedules.fire_schedules",
    ]
    assert all(each["concurrency_limit"] is None and str(ROOT) not in json.dumps(each) for each in deployments)
    assert sorted(each["name"] for each in prefect.post("/automations/filter")) == [
        "tenure: a missed slot is skipped",
        "tenure: a silent run has crashed",
        "tenure: replace a crashed shift of advance-runs",
        "tenure: replace a crashed shift of fire-schedules",
    ]


@pytest.mark.long
def test_a_shift_whose_time_is_up_ends_when_a_younger_one_is_at_work(prefect: Prefect, stack: Stack) -> None:
    older = prefect.start(ADVANCE, shift_seconds=1)
    until(lambda: prefect.state(older).startswith("Running"))
    younger = prefect.start(ADVANCE, shift_seconds=600)
    until(lambda: prefect.state(older).startswith("Completed: relieved:"))
    assert prefect.state(younger).startswith("Running")
    rows = [each for each in prefect.post("/artifacts/filter") if each["flow_run_id"] == older]
    assert [each["key"] for each in rows] == ["advance-runs"]
    assert {row["what"] for row in json.loads(rows[0]["data"])} >= {"passes", "claimed", "moved", "leases handed back"}


def test_a_killed_shift_is_crashed_its_leases_are_handed_back_and_it_is_replaced(
    prefect: Prefect, stack: Stack
) -> None:
    acme = a_realm(stack.database)
    waiting, _ = acme.run(acme.published(definition(step("wait", **{"for": "100h"}), step("end", id="z"))), acme.user())
    until(lambda: state_of(stack, waiting) == ("waiting", None))
    killed = a_shift_at_work(prefect, stack)
    owner, _ = shift_of(stack, killed)
    with stack.database.begin() as connection:
        connection.execute(
            text(
                "UPDATE workflow_runs SET lease_owner = :owner, lease_expires_at = later, due_at = later"
                " FROM (SELECT clock_timestamp() + interval '9 minutes' AS later) AS moment WHERE id = :id"
            ),
            {"owner": owner, "id": waiting},
        )
    os.kill(int(prefect.run(killed)["infrastructure_pid"]), signal.SIGKILL)
    until(lambda: state_of(stack, waiting)[1] is None, within=10)
    until(lambda: shift_of(stack, killed) == (owner, "crashed"))
    until(lambda: prefect.state(killed).startswith("Crashed"))
    until(lambda: any(run["expected_start_time"] > prefect.run(killed)["end_time"] for run in running(prefect)))


def test_an_operators_cancel_ends_a_shift_as_cancelled(prefect: Prefect, stack: Stack) -> None:
    cancelled = a_shift_at_work(prefect, stack)
    prefect.set_state(cancelled, "CANCELLING", "Cancelling")
    until(lambda: prefect.state(cancelled).startswith("Cancelled"))
    assert shift_of(stack, cancelled)[1] in ("stopped", "cancelled")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.long
def test_when_the_host_stops_or_is_killed_its_shifts_end_well_and_others_follow(
    prefect: Prefect, stack: Stack, number: signal.Signals
) -> None:
    a_shift_at_work(prefect, stack)
    hosted = [str(run["id"]) for run in running(prefect)]
    pid = stack.child("host").pid
    assert pid is not None
    os.kill(pid, number)
    until(lambda: {prefect.state(run_id)[:19] for run_id in hosted} == {"Completed: stopped:"})
    until(lambda: shifts.at_work(stack.database, "advance-runs"))
    assert stack.child("host").pid != pid


@pytest.mark.long
def test_a_shift_that_is_wrongly_declared_crashed_goes_on_until_it_is_replaced(prefect: Prefect, stack: Stack) -> None:
    """As an automation does after an outage of the Prefect server, in which heartbeats were lost."""
    declared = a_shift_at_work(prefect, stack)
    prefect.set_state(declared, "CRASHED", "Crashed")
    worst = 0.0

    def is_relieved() -> bool:
        nonlocal worst
        worst = max(worst, silence(stack, "advance-runs"))
        return shift_of(stack, declared)[1] == "relieved"

    until(is_relieved, within=90)
    assert worst < 5


@pytest.mark.long
def test_no_pass_is_missed_while_the_prefect_server_is_away(prefect: Prefect, stack: Stack) -> None:
    a_shift_at_work(prefect, stack)
    server = stack.child("prefect")
    assert server.pid is not None
    os.kill(server.pid, signal.SIGKILL)
    worst = 0.0

    def is_back() -> bool:
        nonlocal worst
        worst = max(worst, silence(stack, "advance-runs"))
        try:
            return prefect.http.get("/health").is_success
        except httpx.TransportError:
            return False

    until(lambda: not is_back())
    until(is_back)
    assert worst < 5


@pytest.mark.long
def test_a_missed_slot_is_skipped(prefect: Prefect, stack: Stack) -> None:
    prefect.ask("PATCH", "/work_pools/tenure", {"is_paused": True})
    try:
        missed = (datetime.now(UTC) - timedelta(minutes=5)).isoformat()
        state = {"type": "SCHEDULED", "state_details": {"scheduled_time": missed}}
        body = {"state": state}
        run_id = prefect.post(f"/deployments/{prefect.deployment(FIRE)['id']}/create_flow_run", body)["id"]
        until(lambda: prefect.state(run_id).startswith("Skipped"))
    finally:
        prefect.ask("PATCH", "/work_pools/tenure", {"is_paused": False})


def test_a_run_that_only_prefect_believes_to_be_running_is_ended(prefect: Prefect, stack: Stack) -> None:
    """After a power loss: its process is gone, and the timers of automations with the server that had them."""
    later = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    body = {"state": {"type": "SCHEDULED", "state_details": {"scheduled_time": later}}}
    zombie = prefect.post(f"/deployments/{prefect.deployment(ADVANCE)['id']}/create_flow_run", body)["id"]
    shifts.begin(stack.database, "advance-runs", "worker-gone-1-a", zombie)
    with stack.database.begin() as connection:
        aged = "UPDATE shifts SET started_at = started_at - interval '3 minutes' WHERE flow_run_id = :run"
        connection.execute(text(aged), {"run": zombie})
    prefect.set_state(zombie, "RUNNING", "Running")
    until(lambda: prefect.state(zombie) == "Crashed: Its shift fell silent.", within=90)
    assert shift_of(stack, zombie) == ("worker-gone-1-a", "lost")


def test_history_is_cleaned_in_one_run(prefect: Prefect, stack: Stack) -> None:
    cleaning = prefect.start(CLEAN, keep_days=1)
    until(lambda: prefect.state(cleaning).startswith("Completed: finished:"))
    assert shift_of(stack, cleaning)[1] == "finished"


def running(prefect: Prefect) -> list[Json]:
    return prefect.runs_of(ADVANCE, "RUNNING")


def state_of(stack: Stack, run_id: str) -> tuple[str, str | None]:
    """State and lease owner of a run."""
    with stack.database.begin() as connection:
        statement = text("SELECT state, lease_owner FROM workflow_runs WHERE id = :id")
        state, owner = connection.execute(statement, {"id": run_id}).one()
        return state, owner
