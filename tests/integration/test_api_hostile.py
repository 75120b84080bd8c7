"""What no caller of good will sends: every body, path and query that once turned a 422 into a 500 (FAULTS.md, 35 and 40)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import httpx
import pytest

from tests.api_routes import BODIES, ROUTES, Route
from tests.calling import Api, paths, problem
from tests.definitions import definition, step
from tests.everything import Everything, everything
from tests.factories import unique

BODY_ROUTES = [route for route in ROUTES if route.takes_body]

UNREADABLE: dict[str, bytes] = {
    "not JSON": b"{",
    "a word": b"hello",
    "two values": b"{} {}",
    "NaN": b'{"name": NaN}',
    "infinity": b'{"name": -Infinity}',
    "1e400": b'{"name": 1e400}',
    "a number of 400 digits": b'{"name": ' + b"9" * 400 + b"}",
    "a number of 5,000 digits": b'{"name": ' + b"9" * 5000 + b"}",
    "900 nested arrays": b'{"name": ' + b"[" * 900 + b"]" * 900 + b"}",
    "100,000 brackets": b"[" * 100_000,
    "half a surrogate in a value": b'{"name": "\\ud800"}',
    "half a surrogate in a key": b'{"\\udfff": 1}',
    "NUL in a value": b'{"name": "a\\u0000b"}',
    "NUL in a key": b'{"a\\u0000": 1}',
    "a raw NUL": b'{"name": "\x00"}',
    "not UTF-8": b'{"name": "\xff\xfe"}',
    "an overlong form": b'{"name": "\xc0\x80"}',
    "a surrogate in UTF-8": b'{"name": "\xed\xa0\x80"}',
    "UTF-16": '{"name": "a"}'.encode("utf-16"),
    "a byte order mark": b"\xef\xbb\xbf{}",
    "a member twice": b'{"name": "a", "name": "b"}',
    "an unfinished string": b'{"name": "' + b"\\" * 5001,
}
NOT_OBJECTS: list[Any] = [[], "text", 5, True, [{}], ""]


@pytest.fixture(scope="module")
def here(api: Api) -> Everything:
    return everything(api.realm)


def sent(api: Api, route: Route, here: Everything, raw: bytes, kind: str = "application/json") -> httpx.Response:
    caller = api.by(here.approver_id, "account") if route.declares == "account" else api
    return caller.call(route.method, route.filled(here), content=raw, headers={"Content-Type": kind, **route.headers})


@pytest.mark.parametrize("name", UNREADABLE)
def test_a_body_that_is_no_sound_json_is_refused(api: Api, here: Everything, name: str) -> None:
    (route,) = [route for route in BODY_ROUTES if route.operation == "create_workflow"]
    refused = problem(sent(api, route, here, UNREADABLE[name]), 422, "validation_failed")
    assert [error["code"] for error in refused["errors"]] == ["json"]


@pytest.mark.parametrize("route", BODY_ROUTES, ids=str)
def test_every_route_reads_its_body_so_and_takes_objects_alone(api: Api, here: Everything, route: Route) -> None:
    """The routes whose members may all be left out, too: nothing unreadable counts as nothing."""
    for raw in (b"{", b'{"\\udfff": 1}', b'{"a": 1e400}'):
        refused = problem(sent(api, route, here, raw), 422, "validation_failed")
        assert [error["code"] for error in refused["errors"]] == ["json"]
    for value in NOT_OBJECTS:
        assert paths(sent(api, route, here, json.dumps(value).encode())) == [""], value
    assert paths(sent(api, route, here, b'{"surprise": 1}')).count("surprise") == 1


@pytest.mark.parametrize("route", BODY_ROUTES, ids=str)
def test_a_body_of_another_type_is_refused_by_every_route(api: Api, here: Everything, route: Route) -> None:
    for kind in ("text/plain", "multipart/form-data; boundary=x", ""):
        problem(sent(api, route, here, b'{"a": 1}', kind), 415, "unsupported_media_type")


@pytest.mark.parametrize("route", BODY_ROUTES, ids=str)
def test_whoever_may_not_ask_is_not_told_what_is_wrong_with_the_body(api: Api, here: Everything, route: Route) -> None:
    answer = api.with_token(None).call(route.method, route.filled(here), content=b"{")
    problem(answer, 401, "unauthenticated")


STRANGE = ["1_000", "9" * 400, "%00", "%0A", "%FF%FE", "%ED%A0%80", "null", "0", "-1", "1.0", "+1", "%20", "{}", "٣"]


@pytest.mark.parametrize("strange", STRANGE)
def test_a_path_that_can_name_nothing_names_nothing(api: Api, here: Everything, strange: str) -> None:
    for route in ("/users/{}", "/workflows/{}/revisions/1", "/organizations/{}/members"):
        problem(api.get(route.format(strange)), 404, "not_found")
    problem(api.get(f"/workflows/{here.workflow_id}/revisions/{strange}"), 404, "not_found")
    problem(replace(api, realm_id=strange).get("/users"), 404, "not_found")


@pytest.mark.parametrize("route", [route for route in ROUTES if "{" in route.path], ids=str)
def test_an_id_has_one_spelling_on_every_route(api: Api, here: Everything, route: Route) -> None:
    caller = api.by(here.approver_id, "account") if route.declares == "account" else api
    body = BODIES[route.operation](here) if route.takes_body else ...
    named = [name for name in vars(here) if f"{{{name}}}" in route.path]
    for name in named:
        value = getattr(here, name)
        for near in (f"{value}%0A", "%00"):
            path = route.path.format(**{**vars(here), name: near})
            problem(caller.call(route.method, path, body), 404, "not_found")


@pytest.mark.parametrize(
    "spelling", [str.upper, lambda id_: id_[:-1], lambda id_: f" {id_}", lambda id_: id_.replace("_", "-")]
)
def test_an_id_is_compared_letter_for_letter(api: Api, here: Everything, spelling: Callable[[str], str]) -> None:
    problem(api.get(f"/users/{spelling(here.user_id)}"), 404, "not_found")


@pytest.mark.parametrize("number", ["01", "1_0", "1%0A", "2147483648", "1e0", "١"])
def test_a_revision_has_one_spelling(api: Api, here: Everything, number: str) -> None:
    problem(api.get(f"/workflows/{here.workflow_id}/revisions/{number}"), 404, "not_found")


NO_LISTS = ("/permissions", "/settings", "/workflows/{workflow_id}/diagnostics")
LISTS = [
    route for route in ROUTES if route.method == "GET" and route.path not in NO_LISTS and not route.path.endswith("}")
]


@pytest.mark.parametrize("route", LISTS, ids=str)
def test_a_list_refuses_a_limit_cursor_or_filter_that_it_does_not_have(
    api: Api, here: Everything, route: Route
) -> None:
    caller = api.by(here.approver_id, "account") if route.declares == "account" else api
    path = route.filled(here)
    for limit in ("0", "101", "1_0", "+5", "٣", "9" * 400):
        assert paths(caller.get(path, limit=limit)) == ["limit"], limit
    for cursor in ("", "%%%", "é", "\x00", "A" * 40, "A" * 5000):
        assert paths(caller.get(path, cursor=cursor)) == ["cursor"], cursor
    assert paths(caller.get(path, offset=1)) == ["offset"]


@pytest.mark.parametrize(
    "since",
    [
        "infinity",
        "now",
        "10000-01-01T00:00:00Z",
        "9999-12-31T23:59:59-14:00",
        "0001-01-01T00:00:00Z",
        "2026-02-30T00:00:00Z",
        "2026-01-01",
        "2026-01-01T00:00:00",
        "1767225600",
        "2026-01-01T00:00:00Z\n",
        "２026-01-01T00:00:00Z",
        "\x00",
    ],
)
def test_a_moment_is_rfc_3339_within_what_comes_out_again(api: Api, here: Everything, since: str) -> None:
    assert paths(api.get("/workflow-runs", since=since)) == ["since"]
    body = {"user_id": here.user_id, "role_id": here.role_id, "expires_at": since}
    if "\x00" not in since:
        assert paths(api.post("/role-assignments", body)) == ["expires_at"]


def test_a_moment_that_is_a_number_or_nothing_is_refused(api: Api, here: Everything) -> None:
    strange: list[Any] = [1767225600, 1.5, True, "", [], {}]
    for value in strange:
        body = {"user_id": here.user_id, "expires_at": value}
        assert paths(api.post(f"/groups/{here.group_id}/members", body)) == ["expires_at"]


@pytest.mark.parametrize(
    "name",
    ["", " a", "a ", "a\n", "a\nb", "a\tb", "a\u2028b", "a\x7fb", "\u0085", "x" * 101, 5, None, True, ["a"], {"a": 1}],
)
def test_a_name_is_one_plain_line(api: Api, name: Any) -> None:
    assert paths(api.post("/organizations", {"name": name})) == ["name"]


@pytest.mark.parametrize("name", ["a\n", "x" * 101, None])
def test_everything_that_has_a_name_has_such_a_name(api: Api, here: Everything, name: Any) -> None:
    for path, rest in (
        ("/workflows", {}),
        ("/roles", {"boundary": "realm", "permissions": []}),
        ("/groups", {"organization_id": here.organization_id}),
        ("/webhook-subscriptions", {"url": "https://hooks.example.org/"}),
        ("/service-principals", {}),
    ):
        assert paths(api.post(path, {"name": name, **rest})) == ["name"]
    assert paths(api.patch(f"/workflows/{here.workflow_id}", {"name": name})) == ["name"]
    assert paths(api.patch(f"/users/{here.user_id}", {"display_name": name})) == ["display_name"]


@pytest.mark.parametrize(
    "email",
    [
        "",
        "a",
        "a@",
        "@b",
        "a@b\n",
        "a b@c",
        "a@b@c",
        "a\r\nBcc: x@y@z",
        "é@b.c",
        "a@-b",
        "x" * 250 + "@b.c",
        "a@b..c",
        None,
        5,
    ],
)
def test_an_address_is_one_plain_address(api: Api, here: Everything, email: Any) -> None:
    assert paths(api.post("/users", {"email": email, "display_name": "A"})) == ["email"]
    assert paths(api.patch(f"/users/{here.user_id}", {"email": email})) == ["email"]


@pytest.mark.parametrize(
    "body",
    [
        {"permissions": ["realm.everything"]},
        {"permissions": ["realm.workflows.read\n"]},
        {"permissions": ["realm.*.read"]},
        {"permissions": [""]},
        {"permissions": ["org.members.read", "realm.users.read"], "boundary": "organization"},
        {"permissions": "realm.*"},
        {"permissions": None},
        {"permissions": [None]},
        {"permissions": ["*"] * 101},
        {"boundary": "group"},
        {"requires_approval": "yes"},
        {"requires_approval": 1},
        {"built_in": True},
    ],
    ids=str,
)
def test_a_role_holds_permissions_of_the_catalogue_within_its_boundary(api: Api, body: dict[str, Any]) -> None:
    valid = {"name": unique("role"), "boundary": "realm", "permissions": ["realm.users.read"]}
    problem(api.post("/roles", {**valid, **body}), 422, "validation_failed")


@pytest.mark.parametrize(
    "url",
    [
        "",
        "x",
        "http://hooks.example.org/",
        "ftp://hooks.example.org/",
        "https://user:secret@hooks.example.org/",
        "https://hooks.example.org/#x",
        "https://2130706433/",
        "https://hooks.example.org:99999/",
        "https://hooks.example.org/\n",
        "https://hooks.example.org/" + "x" * 3000,
        None,
        5,
    ],
)
def test_a_destination_that_cannot_be_called_is_refused_and_not_repeated(api: Api, url: Any) -> None:
    answer = api.post("/webhook-subscriptions", {"name": "hook", "url": url})
    assert answer.status_code == 422
    assert [error["path"] for error in answer.json()["errors"]] == ["url"]
    assert "secret" not in answer.text


@pytest.mark.parametrize("key", ["", "a b", "x" * 129, "é".encode(), b"\xff", "a\tb"])
def test_an_idempotency_key_is_plain_and_short(api: Api, here: Everything, key: str | bytes) -> None:
    answer = api.post(
        f"/workflows/{here.workflow_id}/runs",
        {"subject_id": here.user_id, "organization_id": here.organization_id},
        headers={"Idempotency-Key": key},
    )
    assert paths(answer) == ["Idempotency-Key"]


def test_a_body_that_is_too_large_is_not_read(api: Api) -> None:
    large = b'{"name": "' + b"x" * (1024 * 1024) + b'"}'
    headers = {"Content-Type": "application/json"}
    problem(api.post("/workflows", content=large, headers=headers), 413, "content_too_large")

    def chunks() -> Iterator[bytes]:
        for start in range(0, len(large), 65536):
            yield large[start : start + 65536]

    problem(api.post("/workflows", content=chunks(), headers=headers), 413, "content_too_large")


def test_a_definition_that_is_too_large_is_refused_by_its_canonical_size(api: Api, here: Everything) -> None:
    padded = json.dumps({"definition": definition(step("end"))}) + " " * 200_000
    answer = api.post("/workflows/validate", content=padded, headers={"Content-Type": "application/json"})
    assert answer.status_code == 200, "spaces are no part of it"
    large = definition(step("end"), script="x" * 70_000)
    assert paths(api.post(f"/workflows/{here.workflow_id}/revisions", {"definition": large})) == ["definition"]


def test_a_request_id_is_taken_over_if_it_is_sane_and_made_otherwise(api: Api) -> None:
    def echoed(given: str | bytes) -> str:
        return api.call("GET", "/permissions", headers={"X-Request-Id": given}).headers["x-request-id"]

    assert echoed("abc.DEF-1_2") == "abc.DEF-1_2"
    for strange in ("", "a b", "x" * 65, b"\xff", '"><script>'):
        made = echoed(strange)
        assert made.startswith("req_")
        assert made != echoed(strange)


def test_what_was_sent_is_never_repeated(api: Api, here: Everything) -> None:
    mark = "mark-7f3a9"
    answers = [
        api.get(f"/workflows/{mark}"),
        api.get("/workflows", cursor=mark),
        api.get("/workflows", limit=mark),
        api.get("/workflows", state=mark),
        api.get(f"/{mark}"),
        api.post("/workflows", {"name": f"{mark}\n", "owner_id": mark, "requires_approval": mark}),
        api.post("/users", {"email": mark, "display_name": f"\t{mark}", "kind": mark}),
        api.post("/roles", {"name": "a", "boundary": "realm", "permissions": [mark]}),
        api.post("/webhook-subscriptions", {"name": "a", "url": f"http://{mark}.example.org/"}),
        api.post("/workflows/validate", {"definition": definition(step("notify", notice=mark))}),
        api.post(f"/workflows/{here.workflow_id}/runs", {"subject_id": mark}),
        api.call("GET", "/workflows", headers={"Authorization": f"Bearer {mark}"}),
        api.call("POST", "/workflows", content=mark, headers={"Content-Type": "application/json"}),
    ]
    for answer in answers:
        assert 400 <= answer.status_code < 500
        assert mark not in answer.text
