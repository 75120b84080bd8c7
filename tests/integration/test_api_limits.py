"""Who fails too often is held up, alone, and by failures alone."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import httpx
import pytest

from db.session import Database
from tests.api_routes import DOCUMENT
from tests.calling import ISSUER, PATIENT, Api, an_api, problem
from tests.factories import a_realm

FEW = 3
MANY = 5


@pytest.fixture
def api(module_database: Database) -> Iterator[Api]:
    """The administrator of an API that has forgotten all failures."""
    settings = PATIENT.model_copy(update={"invalid_tokens_per_minute": FEW, "refusals_per_minute": MANY})
    with an_api(module_database, settings) as api:
        yield api


def require_held_up(answer: httpx.Response) -> None:
    problem(answer, 429, "too_many_requests")
    assert 1 <= int(answer.headers["retry-after"]) <= 60
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-request-id"]


def unknown(api: Api, *, place: str | None = None) -> httpx.Response:
    """A call with a token of nobody, which a proxy on this machine says comes from that place."""
    headers = {} if place is None else {"X-Forwarded-For": place}
    return api.with_token("a.b.c").call("GET", "/users", headers=headers)


def test_invalid_tokens_of_a_place_are_held_up_and_valid_ones_are_not(api: Api) -> None:
    for _ in range(FEW):
        problem(unknown(api), 401, "unauthenticated")
    for _ in range(2):
        require_held_up(unknown(api))
        assert api.get("/users").status_code == 200
    for _ in range(FEW):
        problem(unknown(api, place="192.0.2.7"), 401, "unauthenticated")
    require_held_up(unknown(api, place="192.0.2.7"))


def test_no_token_at_all_counts_as_an_invalid_one(api: Api) -> None:
    for _ in range(FEW):
        problem(api.with_token(None).get("/users"), 401, "unauthenticated")
    require_held_up(api.with_token(None).get("/users"))
    require_held_up(unknown(api))


def test_the_token_of_somebody_who_is_not_active_counts_as_an_invalid_one(api: Api) -> None:
    gone = api.by(api.realm.user(state="suspended"))
    for _ in range(FEW):
        problem(gone.get("/users"), 401, "unauthenticated")
    require_held_up(gone.get("/users"))


def test_a_token_for_another_audience_counts_as_an_invalid_one(api: Api) -> None:
    for _ in range(FEW):
        problem(api.by(api.realm.admin, "account").get("/users"), 401, "unauthenticated")
    require_held_up(unknown(api))


def test_a_host_with_a_network_of_addresses_is_one_place(api: Api) -> None:
    for host in range(FEW):
        problem(unknown(api, place=f"2001:db8:1:2::{host}"), 401, "unauthenticated")
    require_held_up(unknown(api, place="2001:db8:1:2:ffff::1"))
    problem(unknown(api, place="2001:db8:1:3::1"), 401, "unauthenticated")


def refused(api: Api) -> httpx.Response:
    return api.get("/users/usr_nobody")


def test_who_was_refused_too_often_is_held_up_and_nobody_else_is(api: Api) -> None:
    other = api.by(api.realm.holder(api.realm.role(None, "realm.*", boundary="realm")))
    for _ in range(MANY):
        problem(refused(api), 404, "not_found")
    for _ in range(2):
        require_held_up(refused(api))
        require_held_up(api.get("/users"))
        require_held_up(api.post("/organizations", {"name": "late"}))
    assert other.get("/users").status_code == 200
    assert other.get("/organizations").json()["items"] == []
    assert api.at(a_realm(api.realm.database)).get("/users").status_code == 200


def test_every_kind_of_refusal_counts_once(api: Api) -> None:
    elsewhere = a_realm(api.realm.database)
    someone = {"email": "twice@example.org", "display_name": "Someone"}
    assert api.post("/users", someone).status_code == 201
    refusals = [
        api.by(api.realm.admin, mfa=False).get("/users"),
        api.by(api.realm.admin).call("GET", "/users", params={"limit": "0"}),
        api.post("/users", someone),
        api.call("POST", "/users", content="{}", headers={"Content-Type": "text/plain"}),
        Api(api.client, elsewhere, api.token, elsewhere.id).get("/users"),
    ]
    assert [answer.status_code for answer in refusals] == [403, 422, 409, 415, 404]
    require_held_up(api.get("/users"))


def test_what_succeeds_costs_nothing(api: Api) -> None:
    for _ in range(MANY - 1):
        problem(refused(api), 404, "not_found")
    for _ in range(3 * MANY):
        assert api.get("/users").status_code == 200
    problem(refused(api), 404, "not_found")
    require_held_up(api.get("/users"))


def test_invalid_tokens_count_against_no_caller(api: Api) -> None:
    expired = ISSUER.issue(api.realm.id, api.realm.admin, "admin", timedelta(seconds=-1))
    for _ in range(2 * MANY):
        assert api.with_token(expired).get("/users").status_code in (401, 429)
    assert api.get("/users").status_code == 200


def test_who_becomes_active_again_is_not_held_up_for_the_time_before(api: Api) -> None:
    ada = api.realm.holder(api.realm.role(None, "realm.users.read", boundary="realm"))
    assert api.post(f"/users/{ada}/suspend").status_code == 200
    for place in ("192.0.2.1", "192.0.2.2"):
        answers = [api.by(ada).call("GET", "/users", headers={"X-Forwarded-For": place}) for _ in range(2 * FEW)]
        assert [answer.status_code for answer in answers] == [401] * FEW + [429] * FEW
    assert api.post(f"/users/{ada}/reactivate").status_code == 200
    assert api.by(ada).get("/users").status_code == 200


def test_nobody_is_held_up_when_the_limits_are_off(module_database: Database) -> None:
    with an_api(module_database, PATIENT) as api:
        for _ in range(100):
            problem(unknown(api), 401, "unauthenticated")
            problem(refused(api), 404, "not_found")


def test_the_document_says_who_may_be_held_up_and_what_comes_too_late() -> None:
    for path, methods in DOCUMENT["paths"].items():
        for method, operation in methods.items():
            name = f"{method} {path}"
            assert ("429" in operation["responses"]) == (operation["x-permission"] != "public"), name
            assert ("408" in operation["responses"]) == ("requestBody" in operation), name
            assert "431" in operation["responses"], name
    for status in (429, 503):
        assert "Retry-After" in DOCUMENT["components"]["responses"][f"Problem{status}"]["headers"]
