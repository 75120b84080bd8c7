"""`call_webhook`: what an endpoint receives, what each answer does to the run, and that one slow endpoint is one slow run."""

from __future__ import annotations

import json
import time
from datetime import timedelta
from pathlib import Path

import jsonschema
import pytest
from standardwebhooks import Webhook, WebhookVerificationError
from werkzeug import Response

from db.session import Database
from engine.core.settings import DeliverySettings
from engine.egress.secrets import Keyring
from engine.lifecycle.worker import Worker
from tests.definitions import Json, definition, event, step
from tests.driver import (
    AnyRow,
    attempts_of,
    drain,
    many_runs,
    outcome,
    owner,
    rows,
    run_of,
    trail_of,
    until,
    wake,
    working,
)
from tests.endpoints import SECRET, Endpoint, nobody_s_url, silent_endpoint
from tests.factories import KEYRING, TestRealm

CONTRACT = Path(__file__).parents[2] / "api/contracts/step-call.v1.json"
SIX_HOURS = 6 * 3600


@pytest.fixture
def ada(acme: TestRealm) -> str:
    return acme.user()


def calling(subscription: str, **members: object) -> Json:
    return step(
        "call_webhook", id="sync", **{"subscription_id": subscription, "timeout_ms": ..., "compensate": ...} | members
    )


def called(acme: TestRealm, worker: Worker, subject: str, subscription: str, **members: object) -> str:
    """A run of one call, to where it stops by itself."""
    run_id, _ = acme.run(acme.published(definition(calling(subscription, **members))), subject)
    drain(worker, acme)
    return run_id


def due_in(acme: TestRealm, run_id: str) -> float:
    """Seconds from the end of the latest attempt to when the run is due."""
    *_, latest = attempts_of(acme, run_id)
    return float((run_of(acme, run_id).due_at - latest.finished_at).total_seconds())


def failures(acme: TestRealm, run_id: str) -> list[str]:
    """The category of every attempt, all of which have failed."""
    found = attempts_of(acme, run_id)
    assert all(row.state == "failed" for row in found)
    return [row.error_category for row in found]


# what is sent


def test_a_call_carries_ids_alone_signed_as_the_stock_library_verifies_and_as_the_contract_says(
    acme: TestRealm, worker: Worker, endpoint: Endpoint
) -> None:
    sales = acme.organization()
    trigger = event("organization.membership.added", organization_id=sales)
    workflow = acme.published(definition(calling(endpoint.subscription), triggers=[trigger]))
    (ada,) = acme.users(1, sales)
    drain(worker, acme)
    (run,) = rows(acme.database, "SELECT * FROM workflow_runs WHERE workflow_id = :id", id=workflow)
    (attempt,) = attempts_of(acme, run.id)
    (call,) = endpoint.calls  # the endpoint has verified its signature
    jsonschema.validate(call.body, json.loads(CONTRACT.read_text()))
    sent_at = call.body.pop("sent_at")
    assert sent_at == attempt.started_at.strftime("%Y-%m-%dT%H:%M:%SZ")
    assert call.body == {
        "type": "workflow.step",
        "contract_version": 1,
        "action": "execute",
        "realm_id": acme.id,
        "organization_id": sales,
        "workflow_id": workflow,
        "revision": 1,
        "run_id": run.id,
        "step_id": "sync",
        "attempt": 1,
        "idempotency_key": f"{run.id}.sync",
        "subject": {"type": "user", "id": ada},
        "trigger": {"type": "event", "event_type": "organization.membership.added", "event_id": run.event_id},
    }
    assert call.headers["Content-Type"] == "application/json"
    assert call.headers["User-Agent"] == "ProudAuth-Workflows/1"
    assert call.headers["Idempotency-Key"] == f"{run.id}.sync" == attempt.idempotency_key
    assert call.headers["Webhook-Id"] == attempt.id
    assert call.headers["Webhook-Timestamp"] == str(int(attempt.started_at.timestamp()))


def test_a_call_carries_a_second_signature_while_a_rotated_secret_is_in_its_overlap_window(
    acme: TestRealm, worker: Worker, endpoint: Endpoint, ada: str
) -> None:
    before = "whsec_" + "YmVmb3Jl" * 4
    bound_to = (acme.id, endpoint.subscription)
    rotate = (
        "UPDATE webhook_subscriptions SET previous_secret = :secret,"
        " previous_until = clock_timestamp() + make_interval(secs => :left) WHERE id = :id"
    )
    sealed = KEYRING.encrypt(before, bound_to=bound_to)
    owner(acme.database, rotate, secret=sealed, left=60, id=endpoint.subscription)
    called(acme, worker, ada, endpoint.subscription)
    owner(acme.database, rotate, secret=sealed, left=-1, id=endpoint.subscription)
    called(acme, worker, ada, endpoint.subscription)
    during, after = endpoint.calls
    for secret in (before, SECRET):
        Webhook(secret).verify(during.raw, during.headers)
    assert len(after.headers["Webhook-Signature"].split()) == 1
    with pytest.raises(WebhookVerificationError):
        Webhook(before).verify(after.raw, after.headers)


def test_every_attempt_has_a_message_id_of_its_own_and_the_key_of_the_step(
    acme: TestRealm, worker: Worker, endpoint: Endpoint, ada: str
) -> None:
    endpoint.execute = [Response(status=500), Response(status=503)]
    run = called(acme, worker, ada, endpoint.subscription, retry={"max_attempts": 3})
    for _ in range(2):
        wake(acme, run)
        drain(worker, acme)
    assert outcome(acme, run) == ("succeeded", None)
    recorded = attempts_of(acme, run)
    assert [row.attempt for row in recorded] == [call.body["attempt"] for call in endpoint.calls] == [1, 2, 3]
    assert [row.id for row in recorded] == [call.headers["Webhook-Id"] for call in endpoint.calls]
    assert len({row.id for row in recorded}) == 3
    assert {row.idempotency_key for row in recorded} == {f"{run}.sync"}
    assert {call.headers["Idempotency-Key"] for call in endpoint.calls} == {f"{run}.sync"}
    assert trail_of(acme, run) == [
        "workflow.run.started",
        "workflow.step.failed",
        "workflow.step.failed",
        "workflow.step.succeeded",
        "workflow.run.succeeded",
    ]


# what an answer does


@pytest.mark.parametrize("status", [200, 299])
def test_any_2xx_completes_the_step(acme: TestRealm, worker: Worker, endpoint: Endpoint, ada: str, status: int) -> None:
    endpoint.execute = [Response(status=status)]
    run = called(acme, worker, ada, endpoint.subscription)
    assert outcome(acme, run) == ("succeeded", None)
    (attempt,) = attempts_of(acme, run)
    assert attempt.result == {"status": status, "changed": True}
    assert (attempt.compensation_strategy, attempt.compensation_state) == ("impossible", "impossible")
    assert attempt.input == {"subscription_id": endpoint.subscription}


def test_a_call_that_can_be_compensated_says_so_when_it_succeeds(
    acme: TestRealm, worker: Worker, endpoint: Endpoint, ada: str
) -> None:
    run = called(acme, worker, ada, endpoint.subscription, compensate=True)
    (attempt,) = attempts_of(acme, run)
    assert (attempt.compensation_strategy, attempt.compensation_state) == ("notify_endpoint", "pending")


@pytest.mark.parametrize(
    ("status", "category"),
    [(400, "http_400"), (404, "http_404"), (410, "gone")],
)
def test_a_4xx_fails_the_step_for_good(
    acme: TestRealm, worker: Worker, endpoint: Endpoint, ada: str, status: int, category: str
) -> None:
    endpoint.execute = [Response(status=status)]
    run = called(acme, worker, ada, endpoint.subscription)
    assert outcome(acme, run) == ("failed", category)
    assert failures(acme, run) == [category]
    assert len(endpoint.calls) == 1


@pytest.mark.parametrize("status", [302, 308, 408, 429, 500, 503])
def test_other_answers_are_tried_again_and_redirects_not_followed(
    acme: TestRealm, worker: Worker, endpoint: Endpoint, ada: str, status: int
) -> None:
    elsewhere = endpoint.server.url_for("/elsewhere")
    endpoint.execute = [Response(status=status, headers={"Location": elsewhere})]
    run = called(acme, worker, ada, endpoint.subscription, retry={"max_attempts": 2, "backoff": "40s"})
    assert outcome(acme, run) == ("running", f"http_{status}")
    assert failures(acme, run) == [f"http_{status}"]
    assert 40 <= due_in(acme, run) <= 48
    wake(acme, run)
    drain(worker, acme)
    assert outcome(acme, run) == ("succeeded", None)
    assert run_of(acme, run).last_error is None
    assert [call.body["attempt"] for call in endpoint.calls] == [1, 2]


@pytest.mark.parametrize(
    ("status", "asked", "least", "most"),
    [(429, "300", 300, 300), (503, "1", 30, 36), (408, "999999", SIX_HOURS, SIX_HOURS), (429, "soon", 30, 36)],
)
def test_retry_after_is_honoured_never_shortens_a_wait_and_is_capped_at_six_hours(
    acme: TestRealm, worker: Worker, endpoint: Endpoint, ada: str, status: int, asked: str, least: float, most: float
) -> None:
    endpoint.execute = [Response(status=status, headers={"Retry-After": asked})]
    run = called(acme, worker, ada, endpoint.subscription)
    assert outcome(acme, run) == ("running", f"http_{status}")
    assert least <= due_in(acme, run) <= most


def test_retry_after_may_be_a_date_counted_from_the_answer_s_own(
    acme: TestRealm, worker: Worker, endpoint: Endpoint, ada: str
) -> None:
    said = {"Date": "Wed, 21 Oct 2015 07:28:00 GMT", "Retry-After": "Wed, 21 Oct 2015 07:38:00 GMT"}
    endpoint.execute = [Response(status=429, headers=said)]
    run = called(acme, worker, ada, endpoint.subscription)
    assert due_in(acme, run) == 600


def test_waits_double_are_spread_and_never_exceed_six_hours_until_the_attempts_are_used_up(
    acme: TestRealm, worker: Worker, endpoint: Endpoint, ada: str
) -> None:
    endpoint.execute = [Response(status=500) for _ in range(10)]
    run = called(acme, worker, ada, endpoint.subscription, retry={"max_attempts": 10, "backoff": "20m"})
    waits = []
    for _ in range(9):
        assert run_of(acme, run).state == "running"
        waits.append(due_in(acme, run))
        wake(acme, run)
        drain(worker, acme)
    for number, wait in enumerate(waits):
        least = min(1200 * 2**number, SIX_HOURS)
        assert least <= wait <= min(least * 1.2, SIX_HOURS)
    assert outcome(acme, run) == ("failed", "retries_exhausted")
    assert failures(acme, run) == ["http_500"] * 10
    assert "http_500" in run_of(acme, run).last_error
    assert {row.max_attempts for row in attempts_of(acme, run)} == {10}
    assert trail_of(acme, run)[-3:] == ["workflow.step.failed", "workflow.run.failed", "workflow.run.failed"]


def test_a_single_attempt_is_exhausted_at_once(acme: TestRealm, worker: Worker, endpoint: Endpoint, ada: str) -> None:
    endpoint.execute = [Response(status=500)]
    run = called(acme, worker, ada, endpoint.subscription, retry={"max_attempts": 1})
    assert outcome(acme, run) == ("failed", "retries_exhausted")
    assert failures(acme, run) == ["http_500"]


def test_an_endpoint_that_does_not_answer_within_the_step_s_own_time_is_a_timeout(
    acme: TestRealm, worker: Worker, ada: str
) -> None:
    with silent_endpoint() as url:
        run = called(acme, worker, ada, acme.subscription(url, allow_private_network=True), timeout_ms=100)
    assert outcome(acme, run) == ("running", "timeout")
    assert failures(acme, run) == ["timeout"]


def test_the_operator_s_limit_holds_where_the_step_would_wait_longer(
    acme: TestRealm, module_database: Database, ada: str
) -> None:
    delivery = DeliverySettings(allow_private_egress=True, webhook_timeout=timedelta(milliseconds=150))
    with silent_endpoint() as url, working(module_database, delivery=delivery) as worker:
        began = time.monotonic()
        run = called(acme, worker, ada, acme.subscription(url, allow_private_network=True), timeout_ms=20_000)
    assert failures(acme, run) == ["timeout"]
    assert time.monotonic() - began < 5


def test_a_connection_that_nobody_takes_is_a_network_error(acme: TestRealm, worker: Worker, ada: str) -> None:
    run = called(acme, worker, ada, acme.subscription(nobody_s_url(), allow_private_network=True))
    assert outcome(acme, run) == ("running", "network_error")
    assert failures(acme, run) == ["network_error"]


# subscriptions


def test_a_paused_subscription_is_tried_again_and_called_once_it_is_active(
    acme: TestRealm, worker: Worker, endpoint: Endpoint, ada: str
) -> None:
    endpoint.become("paused")
    run = called(acme, worker, ada, endpoint.subscription)
    assert outcome(acme, run) == ("running", "subscription_paused")
    assert failures(acme, run) == ["subscription_paused"]
    assert endpoint.calls == []
    endpoint.become("active")
    wake(acme, run)
    drain(worker, acme)
    assert run_of(acme, run).state == "succeeded"
    assert [call.body["attempt"] for call in endpoint.calls] == [2]


@pytest.mark.parametrize(
    ("state", "category"), [("disabled", "subscription_disabled"), ("deleted", "subscription_missing")]
)
def test_a_disabled_or_deleted_subscription_fails_the_step_for_good(
    acme: TestRealm, worker: Worker, endpoint: Endpoint, ada: str, state: str, category: str
) -> None:
    workflow = acme.published(definition(calling(endpoint.subscription)))
    endpoint.become(state)
    run, _ = acme.run(workflow, ada)
    drain(worker, acme)
    assert outcome(acme, run) == ("failed", category)
    assert endpoint.calls == []


def test_a_subscription_that_belongs_to_an_organization_by_now_is_missing(
    acme: TestRealm, worker: Worker, endpoint: Endpoint, ada: str
) -> None:
    run, _ = acme.run(acme.published(definition(calling(endpoint.subscription))), ada)
    owner(
        acme.database,
        "UPDATE webhook_subscriptions SET organization_id = :sales WHERE id = :id",
        sales=acme.organization(),
        id=endpoint.subscription,
    )
    drain(worker, acme)
    assert outcome(acme, run) == ("failed", "subscription_missing")
    assert endpoint.calls == []


def test_a_private_address_needs_the_subscription_s_leave_and_the_operator_s(
    acme: TestRealm, module_database: Database, ada: str
) -> None:
    url = nobody_s_url().replace("http://", "https://")
    allowed, not_allowed = (acme.subscription(url, allow_private_network=leave) for leave in (True, False))
    with working(module_database) as worker:
        assert failures(acme, called(acme, worker, ada, not_allowed)) == ["egress_denied"]
        assert failures(acme, called(acme, worker, ada, allowed)) == ["network_error"]
    with working(module_database, delivery=DeliverySettings(allow_private_egress=False)) as worker:
        run = called(acme, worker, ada, allowed)
    assert failures(acme, run) == ["egress_denied"]
    assert outcome(acme, run) == ("running", "egress_denied")  # transient: an operator may allow it


@pytest.mark.parametrize(
    "url", ["ftp://hooks.example.org/", "http://hooks.example.org#x", "https://user:pw@example.org/"]
)
def test_a_destination_that_cannot_be_called_fails_the_step_for_good(
    acme: TestRealm, worker: Worker, ada: str, url: str
) -> None:
    run = called(acme, worker, ada, acme.subscription(url))
    assert outcome(acme, run) == ("failed", "invalid_destination")


def test_a_secret_that_cannot_be_read_fails_the_step_for_good_and_nothing_is_sent(
    acme: TestRealm, worker: Worker, endpoint: Endpoint, ada: str
) -> None:
    foreign = Keyring({"other": bytes(range(32))}).encrypt(SECRET, bound_to=(acme.id, endpoint.subscription))
    owner(
        acme.database,
        "UPDATE webhook_subscriptions SET secret = :secret WHERE id = :id",
        secret=foreign,
        id=endpoint.subscription,
    )
    run = called(acme, worker, ada, endpoint.subscription)
    assert outcome(acme, run) == ("failed", "secret_unavailable")
    assert endpoint.calls == []


def test_no_secret_and_no_address_is_recorded_of_a_call(
    acme: TestRealm, worker: Worker, ada: str, caplog: pytest.LogCaptureFixture
) -> None:
    url = nobody_s_url() + "?key=sesame"
    subscription = acme.subscription(url, secret=SECRET, allow_private_network=True)
    run = called(acme, worker, ada, subscription)
    (attempt,) = attempts_of(acme, run)
    told = " ".join([str(attempt), str(run_of(acme, run)), caplog.text])
    assert "sesame" not in told
    assert SECRET.removeprefix("whsec_") not in told


# many at once


def test_thirty_endpoints_that_do_not_answer_hold_up_nobody_else(acme: TestRealm, worker: Worker) -> None:
    with silent_endpoint() as url:
        hook = acme.subscription(url, allow_private_network=True)
        slow = acme.published(definition(calling(hook, timeout_ms=9_000)))
        quick = acme.published(definition(step("notify", recipients=...)))
        hanging = many_runs(acme, slow, acme.users(30))
        many_runs(acme, quick, acme.users(30))
        began = time.monotonic()
        while states(acme, quick) != {"succeeded": 30}:
            worker.run_pass()
            assert time.monotonic() - began < 4
        assert states(acme, slow) == {"running": 30}
        begun = [attempts_of(acme, run)[0].state for run in hanging]
        assert begun == ["started"] * 30  # every one of them is out at the same time
    drain(worker, acme)
    assert {category for run in hanging for category in failures(acme, run)} == {"network_error"}


def test_a_worker_whose_callers_are_all_busy_goes_on_with_everything_else(
    acme: TestRealm, module_database: Database
) -> None:
    with silent_endpoint() as url, working(module_database, calls_in_flight=3) as worker:
        hook = acme.subscription(url, allow_private_network=True)
        slow = many_runs(acme, acme.published(definition(calling(hook, timeout_ms=9_000))), acme.users(8))
        quick = acme.published(definition(step("notify", recipients=...)))
        many_runs(acme, quick, acme.users(20))
        began = time.monotonic()
        while states(acme, quick) != {"succeeded": 20}:
            worker.run_pass()
            assert time.monotonic() - began < 4
        begun = [row.state for run in slow for row in attempts_of(acme, run)]
        assert begun == ["started"] * 3  # a call that was not begun is no attempt
    with working(module_database, calls_in_flight=3) as worker:
        until(lambda: drain(worker, acme) and all(attempts_of(acme, run) for run in slow))
    assert {category for run in slow for category in failures(acme, run)} <= {"interrupted", "network_error"}


def test_a_batch_of_calls_is_made_at_once_and_every_answer_recorded(acme: TestRealm, worker: Worker) -> None:
    with silent_endpoint() as url:
        hook = acme.subscription(url, allow_private_network=True)
        workflow = acme.published(definition(calling(hook, timeout_ms=400)))
        runs = many_runs(acme, workflow, acme.users(60))
        began = time.monotonic()
        drain(worker, acme)
    assert time.monotonic() - began < 10  # one after another they would need 24 s
    assert [failures(acme, run) for run in runs] == [["timeout"]] * 60


def states(acme: TestRealm, workflow_id: str) -> dict[str, int]:
    query = "SELECT state, count(*) AS runs FROM workflow_runs WHERE workflow_id = :id GROUP BY state"
    found: list[AnyRow] = rows(acme.database, query, id=workflow_id)
    return {row.state: row.runs for row in found}
