"""Scenes of a worker that loses its lease: stopped for twice its length (SIGSTOP), taken over, let go on (SIGCONT).

Stopped between two transactions it holds no lock, and the fence alone keeps it from writing. Stopped inside one it holds the
rows until the server ends its idle session (idle_in_transaction_session_timeout); until then nobody can take them, and what it
then writes under a lease that is over is refused.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from tests.crash import closing, judge
from tests.crash.stage import Stage
from tests.crash.story import Theatre
from tests.crash.workers import Launcher, WorkerProcess, until

Json = dict[str, Any]

LEASE = 4.0
"""Seconds, as tests.crash.workers has it."""

END: Json = {"id": "done", "type": "end"}
REST: Json = {"id": "rest", "type": "wait", "for": "1m"}
"""Where runs come to rest without having ended, so that a worker without a fence would find something to do."""

ROWS = "SELECT xmin::text AS version, r.* FROM workflow_runs r ORDER BY id"
ATTEMPTS = "SELECT xmin::text AS version, a.* FROM workflow_step_attempts a ORDER BY run_id, step_index, attempt"
TRAIL = "SELECT position FROM audit_events ORDER BY position"


def snapshot(stage: Stage) -> list[Sequence[Any]]:
    """Every run, attempt and audit row, with the transaction that wrote its present version."""
    return [stage.rows(statement) for statement in (ROWS, ATTEMPTS, TRAIL)]


def substance(stage: Stage) -> list[Sequence[Any]]:
    """The same, but for what a renewal changes."""
    return [
        stage.rows("SELECT id, state, step_index, fence, lease_owner FROM workflow_runs ORDER BY id"),
        *snapshot(stage)[1:],
    ]


def require_unchanged(before: list[Sequence[Any]], after: list[Sequence[Any]]) -> None:
    """Nobody has written anything in between."""
    written = [row for was, now in zip(before, after, strict=True) for row in now if row not in was]
    assert before == after, f"written meanwhile: {written}"


def grant(stage: Stage) -> Json:
    return {"id": "grant", "type": "assign_role", "role_id": stage.role, "scope": "organization"}


def call(stage: Stage) -> Json:
    return {"id": "sync", "type": "call_webhook", "subscription_id": stage.endpoint, "retry": {"backoff": "1s"}}


def begun(stage: Stage, *steps: Json, runs: int = 3) -> str:
    """A workflow of these steps with some runs."""
    workflow_id = stage.publish([*steps, END])
    stage.begin(workflow_id, stage.members(runs))
    return workflow_id


def stopped(launcher: Launcher, stage: Stage, place: str, **environment: str) -> WorkerProcess:
    """A worker that stands still at this place."""
    worker = launcher.start(stage.database, f"{place}=stop", **environment)
    worker.wait_stopped()
    return worker


def states(stage: Stage, workflow_id: str = "%") -> list[str]:
    """The states of its runs, or of all."""
    rows = stage.rows("SELECT state FROM workflow_runs WHERE workflow_id LIKE :id", id=workflow_id)
    return [row.state for row in rows]


def brought_to(stage: Stage, workflow_id: str, state: str) -> None:
    """Until all runs of the workflow are in this state, and nobody holds them."""
    held = "SELECT FROM workflow_runs WHERE lease_owner IS NOT NULL"
    until(lambda: set(states(stage, workflow_id)) == {state} and not stage.rows(held), f"all runs are {state}")


def taken_over_by_another(launcher: Launcher, stage: Stage, workflow_id: str) -> list[Sequence[Any]]:
    """Twice the lease passes, in which another worker brings all runs to rest, and leaves. What there is then."""
    until_then = time.monotonic() + 2 * LEASE
    other = launcher.start(stage.database)
    brought_to(stage, workflow_id, "waiting")
    other.leave()
    time.sleep(max(0.0, until_then - time.monotonic()))
    return snapshot(stage)


def lives_on(stage: Stage, worker: WorkerProcess) -> None:
    """The worker goes on with its work as if nothing had been: a new run is brought to its end by it alone."""
    workflow_id = begun(stage, runs=1)
    worker.wait(lambda: states(stage, workflow_id) == ["succeeded"], "it lives on")
    worker.leave()


def ends(stage: Stage, step_id: str) -> list[tuple[int, str, str | None]]:
    """The attempts of that step, over all runs."""
    statement = (
        "SELECT attempt, state, error_category FROM workflow_step_attempts WHERE step_id = :id ORDER BY run_id, attempt"
    )
    return [(row.attempt, row.state, row.error_category) for row in stage.rows(statement, id=step_id)]


PATIENT = {"TENURE_LEASE_DURATION": "PT12S", "TENURE_WEBHOOK_TIMEOUT": "PT10S"}
"""For a worker whose call is held by the endpoint."""

Scene = Callable[[Theatre], None]


def stopped_between_two_transactions(theatre: Theatre, place: str) -> None:
    """Another takes its runs over and parks them; the fence alone keeps it from touching them again."""
    with theatre.stage() as stage:
        began = time.monotonic()
        workflow_id = begun(stage, grant(stage), REST)
        worker = stopped(theatre.launcher, stage, place)
        before = taken_over_by_another(theatre.launcher, stage, workflow_id)

        worker.send(signal.SIGCONT)
        worker.wait_passes(3)

        require_unchanged(before, snapshot(stage))
        assert ends(stage, "grant") == [(1, "succeeded", None)] * 3
        judge.require_sound(stage.database)
        lives_on(stage, worker)
        judge.require_sound(stage.database)
        closing.add_test(stage, f"stopped at {place}", faults=1, began=began)


def stopped_inside_a_transaction(theatre: Theatre, runs: int) -> None:
    """It keeps its locks, so nobody takes its runs; but what it writes comes after the end of its lease, and is refused."""
    with theatre.stage() as stage:
        began = time.monotonic()
        workflow_id = begun(stage, grant(stage), runs=runs)
        worker = stopped(theatre.launcher, stage, "round.after_load@assign_role")
        other = theatre.launcher.start(stage.database).wait_ready()
        time.sleep(2 * LEASE)
        assert states(stage, workflow_id) == ["pending"] * runs, "nobody can take what it has locked"

        worker.send(signal.SIGCONT)

        brought_to(stage, workflow_id, "succeeded")
        judge.require_sound(stage.database)
        assert ends(stage, "grant") == [(1, "succeeded", None)] * runs
        other.leave()
        lives_on(stage, worker)
        closing.add_test(stage, f"stopped inside a transaction of {runs}", faults=1, began=began)


def stopped_inside_a_transaction_that_the_server_ends(theatre: Theatre, place: str) -> None:
    """With the session gone its locks are gone: another takes over. Its transaction cannot be committed any more."""
    with theatre.stage() as stage:
        began = time.monotonic()
        workflow_id = begun(stage, grant(stage), REST)
        worker = stopped(theatre.launcher, stage, place, TENURE_IDLE_IN_TRANSACTION_TIMEOUT="PT1S")
        before = taken_over_by_another(theatre.launcher, stage, workflow_id)

        worker.send(signal.SIGCONT)
        worker.wait_passes(3)

        require_unchanged(before, snapshot(stage))
        assert ends(stage, "grant") == [(1, "succeeded", None)] * 3
        lives_on(stage, worker)
        judge.require_sound(stage.database)
        closing.add_test(stage, f"stopped at {place}, cut off", faults=1, began=began)


def stopped_for_a_moment_and_cut_off(theatre: Theatre) -> None:
    """The server has ended its session, but its lease holds: it does the step again, and nobody's attempt has failed."""
    with theatre.stage() as stage:
        began = time.monotonic()
        workflow_id = begun(stage, grant(stage), runs=1)
        place = "round.before_commit@assign_role"
        worker = stopped(theatre.launcher, stage, place, TENURE_IDLE_IN_TRANSACTION_TIMEOUT="PT0.3S")
        sessions = (
            "SELECT FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in transaction%'"
        )
        until(lambda: not stage.rows(sessions), "the server has ended the session")

        worker.send(signal.SIGCONT)
        brought_to(stage, workflow_id, "succeeded")

        assert ends(stage, "grant") == [(1, "succeeded", None)]
        worker.leave()
        judge.require_sound(stage.database)
        closing.add_test(stage, "stopped for a moment, cut off", faults=1, began=began)


def stopped_in_a_call(theatre: Theatre, place: str) -> None:
    """The call is recorded as interrupted and made again under the same key; the late answer is nobody's."""
    with theatre.stage() as stage:
        began = time.monotonic()
        workflow_id = begun(stage, call(stage), REST, runs=1)
        worker = stopped(theatre.launcher, stage, f"{place}@call_webhook")
        before = taken_over_by_another(theatre.launcher, stage, workflow_id)
        (run,) = stage.rows("SELECT id FROM workflow_runs")

        worker.send(signal.SIGCONT)
        worker.wait(lambda: len(theatre.receiver.of(run.id)) == 2, "its call is made at last")
        worker.wait_passes(3)

        require_unchanged(before, snapshot(stage))
        assert ends(stage, "sync") == [(1, "failed", "interrupted"), (2, "succeeded", None)]
        assert {sent.key for sent in theatre.receiver.of(run.id)} == {f"{run.id}.sync"}
        lives_on(stage, worker)
        judge.require_sound(stage.database)
        judge.require_calls_sound(stage.database, theatre.receiver.of(run.id))
        closing.add_test(stage, f"stopped at {place}", faults=1, began=began, calls=2)


def lease_lost_while_a_call_is_out(theatre: Theatre) -> None:
    """The first answer comes while another worker has the second attempt out: it is not the answer to that."""
    receiver = theatre.receiver
    with theatre.stage("/held/by-another") as stage:
        began = time.monotonic()
        begun(stage, call(stage), runs=1)
        (run,) = stage.rows("SELECT id FROM workflow_runs")
        worker = theatre.launcher.start(stage.database, **PATIENT)
        until(lambda: len(receiver.of(run.id)) == 1, "the call is out")
        worker.send(signal.SIGSTOP)
        worker.wait_stopped()
        # Its lease ends early, as it would if no renewal got through.
        stage.execute("UPDATE workflow_runs SET lease_expires_at = now(), due_at = now()")
        other = theatre.launcher.start(stage.database, "call.after_send@call_webhook=stop", **PATIENT)
        until(lambda: len(receiver.of(run.id)) == 2, f"the call is made again by another: {other.said}")
        before = substance(stage)

        worker.send(signal.SIGCONT)
        receiver.release("/held/by-another")
        worker.wait_passes(3)

        require_unchanged(before, substance(stage))  # the first answer has come, and is nobody's any more
        receiver.release("/held/by-another")
        other.wait_stopped()
        other.send(signal.SIGCONT)
        until(lambda: states(stage) == ["succeeded"], "the second answer counts")
        assert ends(stage, "sync") == [(1, "failed", "interrupted"), (2, "succeeded", None)]
        other.leave()
        worker.leave()
        judge.require_sound(stage.database)
        judge.require_calls_sound(stage.database, receiver.of(run.id))
        closing.add_test(stage, "lease lost while a call is out", faults=1, began=began, calls=2)


def lease_lost_and_claimed_again_while_a_call_is_out(theatre: Theatre) -> None:
    """The same worker takes the run again and has the second attempt out when the answer to the first comes: the owner is the
    right one, and only the fence tells that the answer is too old."""
    receiver = theatre.receiver
    with theatre.stage("/held/by-the-same") as stage:
        began = time.monotonic()
        begun(stage, call(stage), runs=1)
        (run,) = stage.rows("SELECT id FROM workflow_runs")
        worker = theatre.launcher.start(stage.database, **PATIENT)
        worker.wait(lambda: len(receiver.of(run.id)) == 1, "its call is out")
        stage.execute("UPDATE workflow_runs SET lease_expires_at = now(), due_at = now()")
        worker.wait(lambda: len(receiver.of(run.id)) == 2, "it makes the call again")
        before = substance(stage)

        receiver.release("/held/by-the-same")
        worker.wait_passes(3)

        require_unchanged(before, substance(stage))  # the first answer has come, and is nobody's any more
        receiver.release("/held/by-the-same")
        worker.wait(lambda: states(stage) == ["succeeded"], "the second answer counts")
        assert ends(stage, "sync") == [(1, "failed", "interrupted"), (2, "succeeded", None)]
        worker.leave()
        judge.require_sound(stage.database)
        judge.require_calls_sound(stage.database, receiver.of(run.id))
        closing.add_test(stage, "lease lost and claimed again while a call is out", faults=1, began=began, calls=2)


SCENES: dict[str, Scene] = {
    "stopped after its claim": partial(stopped_between_two_transactions, place="claim.after_commit"),
    "stopped after a commit": partial(stopped_between_two_transactions, place="round.after_commit@assign_role"),
    "stopped inside a transaction": partial(stopped_inside_a_transaction, runs=3),
    "stopped inside a transaction of one run": partial(stopped_inside_a_transaction, runs=1),
    "stopped after it has read, and cut off": partial(
        stopped_inside_a_transaction_that_the_server_ends, place="round.after_load@assign_role"
    ),
    "stopped before a commit, and cut off": partial(
        stopped_inside_a_transaction_that_the_server_ends, place="round.before_commit@assign_role"
    ),
    "stopped for a moment, and cut off": stopped_for_a_moment_and_cut_off,
    "stopped before it calls": partial(stopped_in_a_call, place="call.before_send"),
    "stopped before it takes the answer": partial(stopped_in_a_call, place="call.after_send"),
    "cut off from its lease while a call is out": lease_lost_while_a_call_is_out,
    "cut off from its lease while a call is out, and back": lease_lost_and_claimed_again_while_a_call_is_out,
}
