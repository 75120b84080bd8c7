"""Pages: nothing skipped, nothing twice, whatever is inserted meanwhile; and cursors that are not of the list."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest

from db.session import Database
from tests.calling import Api, paths
from tests.definitions import definition
from tests.factories import TestRealm, a_realm


def pages(api: Api, path: str, **query: Any) -> Iterator[list[Any]]:
    """Page after page until there is no next."""
    cursor: str | None = None
    while True:
        page = api.get(path, **query, **({} if cursor is None else {"cursor": cursor})).json()
        yield page["items"]
        cursor = page["next_cursor"]
        if cursor is None:
            return


def test_all_pages_together_hold_everything_once_and_the_newest_first(api: Api) -> None:
    realm = a_realm(api.realm.database)
    made = [realm.admin, *realm.users(23)]
    for limit in (1, 5, 8, 24, 100):
        found = [user["id"] for page in pages(api.at(realm), "/users", limit=limit) for user in page]
        assert found == sorted(made, reverse=True)
    lengths = [len(page) for page in pages(api.at(realm), "/users", limit=8)]
    assert lengths == [8, 8, 8], "a full last page is the last one"


def test_rows_inserted_while_pages_are_read_shift_nothing(api: Api) -> None:
    realm = a_realm(api.realm.database)
    before = [realm.admin, *realm.users(11)]
    found: list[str] = []
    for page in pages(api.at(realm), "/users", limit=3):
        found += [user["id"] for user in page]
        realm.users(2)
    assert found == sorted(before, reverse=True)


def test_every_list_has_pages(api: Api) -> None:
    realm = a_realm(api.realm.database)
    caller = api.at(realm)
    user = realm.user()
    organizations = [realm.organization(None, user) for _ in range(3)]
    realm.add_members(organizations[0], [realm.admin, realm.user()])
    roles = [realm.role() for _ in range(3)]
    group = realm.group(organizations[0], roles=roles, members=[user, realm.admin])
    realm.group(organizations[1])
    for role in roles:
        realm.grant(user, role, organizations[0])
    workflow = realm.published(definition())
    for _ in range(2):
        realm.revision(realm.workflow(), definition())
        realm.revision(workflow, definition())
        realm.subscription()
        realm.run(workflow, user)
    lists = {
        "/workflows": 3,
        f"/workflows/{workflow}/revisions": 3,
        "/workflow-runs": 2,
        "/users": 3,
        "/organizations": 3,
        f"/organizations/{organizations[0]}/members": 3,
        "/groups": 2,
        f"/groups/{group}/members": 2,
        f"/groups/{group}/roles": 3,
        "/roles": 7,
        "/role-assignments": 4,
        "/webhook-subscriptions": 2,
    }
    for path, count in lists.items():
        assert [len(page) for page in pages(caller, path, limit=1)] == [1] * count, path
        whole = caller.get(path, limit=100).json()["items"]
        assert [item for page in pages(caller, path, limit=2) for item in page] == whole, path
    audited = [event["id"] for page in pages(caller, "/audit-events", limit=7) for event in page]
    assert len(audited) == len(set(audited)) > 20


def cursor_of(api: Api, path: str, **query: Any) -> str:
    cursor = api.get(path, limit=1, **query).json()["next_cursor"]
    assert isinstance(cursor, str)
    return cursor


@pytest.fixture(scope="module")
def cursor(api: Api) -> str:
    api.realm.users(3)
    return cursor_of(api, "/users")


def test_a_cursor_cut_short_lengthened_or_changed_anywhere_is_refused(api: Api, cursor: str) -> None:
    assert api.get("/users", cursor=cursor).status_code == 200
    wrong = [cursor[:length] for length in range(1, len(cursor), 5)]
    wrong += [cursor + extra for extra in ("A", "AA", "=", "==", " ", "\n")]
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    for place in [*range(0, len(cursor), 7), len(cursor) - 1]:
        other = letters[(letters.index(cursor[place]) + 1) % 64]
        wrong.append(cursor[:place] + other + cursor[place + 1 :])
    for each in wrong:
        assert paths(api.get("/users", cursor=each)) == ["cursor"], each


def test_a_cursor_counts_in_its_own_realm_and_list_and_with_its_own_filters(
    api: Api, cursor: str, module_database: Database
) -> None:
    other: TestRealm = a_realm(module_database)
    other.users(3)
    assert paths(api.at(other).get("/users", cursor=cursor)) == ["cursor"]
    for path in ("/workflows", "/roles", "/audit-events", "/organizations"):
        assert paths(api.get(path, cursor=cursor)) == ["cursor"]
    assert paths(api.get("/users", cursor=cursor, state="active")) == ["cursor"]
    filtered = cursor_of(api, "/users", state="active")
    assert paths(api.get("/users", cursor=filtered)) == ["cursor"]
    assert api.get("/users", cursor=filtered, state="active", limit=50).status_code == 200, "the limit may change"


def test_whoever_makes_a_cursor_of_their_own_learns_nothing_by_it(api: Api) -> None:
    """The digest is no secret: a position is taken for a place in the caller's own list, or for none at all."""
    from api import paging

    users = f'["{api.realm.id}", "users", {{"state": null, "kind": null, "email": null}}]'
    audit = f'["{api.realm.id}", "audit-events", {{"target_id": null, "correlation_id": null, "since": null}}]'
    assert api.get("/users", cursor=paging._cursor("usr_zzz", users)).status_code == 200
    for position in ("'; DROP", "\x00", "", "x" * 65, "é"):
        made = paging._cursor(position, users)
        assert paths(api.get("/users", cursor=made)) == ["cursor"], position
    for position in ("abc", "-1", str(2**63), "1_0", ""):
        assert paths(api.get("/audit-events", cursor=paging._cursor(position, audit))) == ["cursor"], position
    assert api.get("/audit-events", cursor=paging._cursor(str(2**63 - 1), audit)).status_code == 200
    assert base64.urlsafe_b64decode(paging._cursor("a", users) + "==")[paging.DIGEST :] == b"a"


def test_a_position_that_no_row_can_have_is_no_position(api: Api) -> None:
    from api import paging

    workflow = api.realm.published(definition())
    about = json.dumps([api.realm_id, "revisions", workflow, {}])
    path = f"/workflows/{workflow}/revisions"
    for position in (2**31, 2**63, 10**18):
        assert paths(api.get(path, cursor=paging._cursor(str(position), about))) == ["cursor"], position
    (found,) = api.get(path, cursor=paging._cursor(str(2**31 - 1), about)).json()["items"]
    assert found["number"] == 1


@pytest.mark.parametrize("position", ["0", "z" * 64, "_" * 64, "usr_"])
def test_any_text_may_be_compared_with_an_id(api: Api, position: str) -> None:
    from api import paging

    about = json.dumps([api.realm_id, "roles", {}])
    assert api.get("/roles", cursor=paging._cursor(position, about)).status_code == 200
