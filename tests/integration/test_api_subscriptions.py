"""Webhook subscriptions: secrets are shown once, kept encrypted, and in no other place."""

from __future__ import annotations

import pytest
from sqlalchemy.exc import IntegrityError
from werkzeug import Response

from engine.egress.signing import Secret
from engine.lifecycle.worker import Worker
from tests.calling import Api, paths, problem
from tests.definitions import definition, id_of, step
from tests.driver import attempts_of, drain, owner, rows, run_of, wake
from tests.endpoints import Endpoint
from tests.factories import KEYRING, TestRealm, a_realm, unique

URL = "https://hooks.example.org/path?key=k3y"


def made(api: Api, **members: object) -> dict[str, str]:
    answer = api.post("/webhook-subscriptions", {"name": unique("hook"), "url": URL, **members})
    assert answer.status_code == 201, answer.text
    subscription: dict[str, str] = answer.json()
    return subscription


def stored(api: Api, subscription: dict[str, str]) -> list[str]:
    """The secrets in the row, opened: the present one, then the one before."""
    (row,) = rows(api.realm.database, "SELECT * FROM webhook_subscriptions WHERE id = :id", id=subscription["id"])
    sealed = [row.secret] if row.previous_secret is None else [row.secret, row.previous_secret]
    return [KEYRING.decrypt(each, bound_to=(api.realm.id, subscription["id"])) for each in sealed]


def test_a_secret_is_shown_once_and_found_nowhere_else(api: Api) -> None:
    subscription = made(api)
    secret = subscription.pop("secret")
    assert len(Secret.parse(secret).key) == 32
    assert stored(api, subscription) == [secret]
    assert api.get(f"/webhook-subscriptions/{subscription['id']}").json() == subscription
    shown = api.get("/webhook-subscriptions", limit=100).text + api.get("/audit-events", limit=100).text
    assert secret not in shown
    assert secret.removeprefix("whsec_") not in shown
    assert "k3y" not in api.get("/audit-events", limit=100).text, "many endpoints carry their key in the URL"
    (row,) = rows(
        api.realm.database, "SELECT w::text AS all FROM webhook_subscriptions w WHERE id = :id", id=subscription["id"]
    )
    assert secret.removeprefix("whsec_").encode().hex() not in row.all


def test_a_rotated_secret_goes_on_signing_beside_the_new_one_for_a_day(api: Api) -> None:
    subscription = made(api)
    rotated = api.post(f"/webhook-subscriptions/{subscription['id']}/rotate-secret").json()
    assert stored(api, subscription) == [rotated["secret"], subscription["secret"]]
    (overlap,) = rows(
        api.realm.database,
        "SELECT previous_until BETWEEN clock_timestamp() + interval '23 h' AND clock_timestamp() + interval '24 h' AS ok"
        " FROM webhook_subscriptions WHERE id = :id",
        id=subscription["id"],
    )
    assert overlap.ok
    assert rotated["previous_secret_until"] is not None
    again = api.post(f"/webhook-subscriptions/{subscription['id']}/rotate-secret").json()
    assert stored(api, subscription) == [again["secret"], rotated["secret"]]
    owner(
        api.realm.database,
        "UPDATE webhook_subscriptions SET previous_until = clock_timestamp() WHERE id = :id",
        id=subscription["id"],
    )
    assert api.get(f"/webhook-subscriptions/{subscription['id']}").json()["previous_secret_until"] is None


def test_a_subscription_is_paused_resumed_and_disabled(api: Api) -> None:
    path = f"/webhook-subscriptions/{made(api)['id']}"

    def state(verb: str) -> str:
        return str(api.post(f"{path}/{verb}").json()["state"])

    assert [state(verb) for verb in ("pause", "pause", "resume", "resume", "disable", "disable")] == [
        "paused",
        "paused",
        "active",
        "active",
        "disabled",
        "disabled",
    ]
    problem(api.post(f"{path}/pause"), 409, "conflict")
    assert state("resume") == "active"
    types = [event["type"] for event in api.get("/audit-events", target_id=path.split("/")[-1]).json()["items"]]
    assert types == [
        "webhook.subscription.resumed",
        "webhook.subscription.disabled",
        "webhook.subscription.resumed",
        "webhook.subscription.paused",
        "webhook.subscription.created",
    ]
    assert path.split("/")[-1] not in api.get("/webhook-subscriptions", state="paused").text


@pytest.mark.parametrize("verbs", [[], ["pause"], ["disable"]], ids=["active", "paused", "disabled"])
def test_a_deleted_subscription_is_not_there(api: Api, verbs: list[str]) -> None:
    subscription = made(api)
    path = f"/webhook-subscriptions/{subscription['id']}"
    for verb in verbs:
        assert api.post(f"{path}/{verb}").status_code == 200
    deleted = api.delete(path)
    assert (deleted.status_code, deleted.content) == (204, b"")
    missing = problem(api.delete(f"/webhook-subscriptions/{id_of('whk')}"), 404, "not_found")
    assert problem(api.delete(path), 404, "not_found") == missing
    assert problem(api.get(path), 404, "not_found") == missing
    for verb in ("rotate-secret", "pause", "resume", "disable"):
        assert problem(api.post(f"{path}/{verb}"), 404, "not_found") == missing
    assert subscription["id"] not in api.get("/webhook-subscriptions", limit=100).text
    calling = definition(step("call_webhook", subscription_id=subscription["id"]))
    assert paths(api.post("/workflows/validate", {"definition": calling})) == ["definition.steps[0].subscription_id"]
    latest, *before = api.get("/audit-events", target_id=subscription["id"]).json()["items"]
    assert (latest["type"], latest["details"]) == ("webhook.subscription.deleted", {})
    assert len(before) == 1 + len(verbs)


def test_a_deleted_subscription_keeps_nothing_that_opens_an_endpoint(api: Api) -> None:
    subscription = made(api)
    path, find = f"/webhook-subscriptions/{subscription['id']}", "SELECT * FROM webhook_subscriptions WHERE id = :id"
    api.post(f"{path}/rotate-secret")
    api.delete(path)
    (row,) = rows(api.realm.database, find, id=subscription["id"])
    assert (row.state, row.secret, row.previous_secret, row.previous_until) == ("deleted", None, None, None)
    assert row.url is None, "many endpoints carry their key in the URL"


@pytest.mark.parametrize("change", ["state = 'deleted'", "secret = NULL", "url = NULL"])
def test_the_table_itself_keeps_secrets_exactly_as_long_as_their_subscription(api: Api, change: str) -> None:
    subscription_id = made(api)["id"]
    with pytest.raises(IntegrityError, match="deleted_keeps_no_secret"):
        owner(api.realm.database, f"UPDATE webhook_subscriptions SET {change} WHERE id = :id", id=subscription_id)


def test_a_run_that_waits_for_its_next_try_does_not_call_what_is_deleted_meanwhile(
    api: Api, acme: TestRealm, worker: Worker, endpoint: Endpoint
) -> None:
    endpoint.execute = [Response(status=503)] * 5
    run, _ = acme.run(
        acme.published(definition(step("call_webhook", subscription_id=endpoint.subscription))), acme.user()
    )
    drain(worker, acme)
    assert [attempt.error_category for attempt in attempts_of(acme, run)] == ["http_503"]
    assert api.at(acme).delete(f"/webhook-subscriptions/{endpoint.subscription}").status_code == 204
    wake(acme, run)
    drain(worker, acme)
    assert (run_of(acme, run).state, run_of(acme, run).error_category) == ("failed", "subscription_missing")
    assert len(endpoint.calls) == 1


def test_a_private_destination_is_named_as_such(api: Api) -> None:
    body = {"name": "hook", "url": "http://10.0.0.1/"}
    assert api.post("/webhook-subscriptions", body).status_code == 422
    assert made(api, url="http://10.0.0.1/", allow_private_network=True)["url"] == "http://10.0.0.1/"


def test_a_secret_moved_to_another_subscription_does_not_open(api: Api) -> None:
    one, two = made(api), made(api)
    owner(
        api.realm.database,
        "UPDATE webhook_subscriptions SET secret = (SELECT secret FROM webhook_subscriptions WHERE id = :one) WHERE id = :two",
        one=one["id"],
        two=two["id"],
    )
    with pytest.raises(Exception, match="belongs to another"):
        stored(api, two)
    assert a_realm(api.realm.database).id != api.realm.id
