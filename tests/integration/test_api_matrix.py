"""The matrix: every route of a realm, and everything that must open none of them.

Its rows are the routes and its cells are read off the document of the API: which ids a path, body or query can name, which lists
have cursors. A route that is added is in it by itself, or fails here for want of a body (tests/api_routes.py) or of an id to
fill its path with (tests/everything.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import httpx
import pytest

from db.session import Database
from engine.core import ids
from engine.core.ids import Prefix
from engine.directory.permissions import CATALOGUE
from tests.api_routes import DOCUMENT, ROUTES, Route, body_of
from tests.calling import Api, an_api, problem
from tests.definitions import Json
from tests.everything import Everything, everything, nothing
from tests.factories import TestRealm, a_realm

SELF_SERVICE = [route for route in ROUTES if route.declares == "account"]
ADMINISTRATION = [route for route in ROUTES if route.declares != "account"]
CHANGES = [route for route in ADMINISTRATION if route.method != "GET"]
OF_MACHINES = ("receive_event",)
"""The changes that a service principal may make."""


ANY = "^[a-z]{3}_"
"""Of an id of any kind: how its pattern begins."""


@dataclass(frozen=True)
class Cell:
    """A place of a route that names something by its id: `way` leads to it, "[]" through an array."""

    route: Route
    way: tuple[str, ...]
    prefix: str

    def __str__(self) -> str:
        return f"{self.route}:{'.'.join(self.way)}"


@dataclass(frozen=True)
class World:
    """The realm that calls, another one with the same things in it, and ids that nobody has."""

    api: Api
    here: Everything
    other: TestRealm
    there: Everything

    def caller(self, route: Route) -> Api:
        """Who may call the route."""
        return self.api.by(self.here.approver_id, "account") if route.declares == "account" else self.api

    def call(self, api: Api, route: Route, path: Everything, body: Any) -> httpx.Response:
        """The route, with ids in its path, and a body."""
        return api.call(route.method, route.filled(path), body, headers=route.headers)


@pytest.fixture(scope="module")
def world(module_database: Database) -> Iterator[World]:
    with an_api(module_database) as api:
        other = a_realm(module_database)
        yield World(api, everything(api.realm), other, everything(other))


def _id_prefix(schema: Json) -> str | None:
    """What kind of id a schema takes, if it is one of an id; ANY for any."""
    for each in (schema, *schema.get("anyOf", ())):
        if str(each.get("pattern", "")).startswith(ANY):
            return ANY
        prefix, found, _ = str(each.get("pattern", "")).removeprefix("^").partition("_")
        if found and prefix in set(Prefix):
            return prefix
    return None


def _resolved(schema: Json) -> Json:
    while "$ref" in schema:
        schema = DOCUMENT["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return schema


def _ids_in(schema: Json, way: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """Where a body of that schema names ids."""
    schema = _resolved(schema)
    if (prefix := _id_prefix(schema)) is not None:
        yield way, prefix
    for each in schema.get("anyOf", ()):
        if _id_prefix(each) is None:
            yield from _ids_in(each, way)
    for name, inner in schema.get("properties", {}).items():
        if name != "definition":  # what a definition names is a contract of its own, and has tests of its own
            yield from _ids_in(inner, (*way, name))
    if "items" in schema:
        yield from _ids_in(schema["items"], (*way, "[]"))


def _operation(route: Route) -> Json:
    found: Json = DOCUMENT["paths"][f"/api/v1/realms/{{realm_id}}{route.path}"][route.method.lower()]
    return found


def _body_cells() -> Iterator[Cell]:
    for route in ROUTES:
        content = _operation(route).get("requestBody", {}).get("content", {})
        for way, prefix in _ids_in(content.get("application/json", {}).get("schema", {})):
            yield Cell(route, way, prefix)


def _query_cells() -> Iterator[Cell]:
    for route in ROUTES:
        for parameter in _operation(route).get("parameters", ()):
            prefix = _id_prefix(parameter["schema"])
            if parameter["in"] == "query" and prefix is not None:
                yield Cell(route, (parameter["name"],), prefix)


PATH_CELLS = [(route, name) for route in ROUTES for name in route.parameters if name != "number"]
BODY_CELLS = list(_body_cells())
QUERY_CELLS = list(_query_cells())
PAGED = [route for route in ROUTES if any(each["name"] == "cursor" for each in _operation(route).get("parameters", ()))]


def test_the_matrix_is_not_empty() -> None:
    """What is read off the document is there: a change of its form must not leave the matrix without cells."""
    assert len(ROUTES) > 70
    assert len(PATH_CELLS) >= 52
    assert {f"{cell}" for cell in BODY_CELLS} > {
        "start_run:subject_id",
        "create_group:parent_id",
        "assign_role:role_id",
    }
    assert {f"{cell}" for cell in QUERY_CELLS} > {"list_runs:workflow_id", "list_groups:organization_id"}
    assert len(PAGED) > 12


def test_every_query_that_names_something_by_its_id_is_a_cell() -> None:
    named = {
        f"{route}:{parameter['name']}"
        for route in ROUTES
        for parameter in _operation(route).get("parameters", ())
        if parameter["in"] == "query" and parameter["name"].endswith("_id")
    }
    assert named == {f"{cell}" for cell in QUERY_CELLS}
    assert {"list_audit_events:target_id", "list_audit_events:correlation_id"} < named


# Who may not call at all


@pytest.mark.parametrize("route", ROUTES, ids=str)
def test_no_token(world: World, route: Route) -> None:
    answer = world.call(world.api.with_token(None), route, world.here, body_of(route, world.here))
    problem(answer, 401, "unauthenticated")


@pytest.mark.parametrize("route", ADMINISTRATION, ids=str)
def test_an_account_token(world: World, route: Route) -> None:
    api = world.api.by(world.api.realm.admin, "account")
    problem(world.call(api, route, world.here, body_of(route, world.here)), 401, "unauthenticated")


@pytest.mark.parametrize("route", SELF_SERVICE, ids=str)
def test_an_administration_token_in_self_service(world: World, route: Route) -> None:
    api = world.api.by(world.here.approver_id)
    problem(world.call(api, route, world.here, body_of(route, world.here)), 401, "unauthenticated")


@pytest.mark.parametrize("route", ADMINISTRATION, ids=str)
def test_no_second_factor(world: World, route: Route) -> None:
    api = world.api.by(world.api.realm.admin, mfa=False)
    problem(world.call(api, route, world.here, body_of(route, world.here)), 403, "mfa_required")


@pytest.fixture(scope="module")
def holder(world: World) -> Callable[[frozenset[str]], Api]:
    """A caller who holds exactly these permissions, realm-wide."""
    made: dict[frozenset[str], Api] = {}

    def of(permissions: frozenset[str]) -> Api:
        if permissions not in made:
            role = world.api.realm.role(None, *sorted(permissions), boundary="realm")
            made[permissions] = world.api.by(world.api.realm.holder(role))
        return made[permissions]

    return of


@pytest.mark.parametrize("route", ADMINISTRATION, ids=str)
def test_the_wrong_role(world: World, holder: Callable[[frozenset[str]], Api], route: Route) -> None:
    """A role that holds everything but what the route declares."""
    api = holder(frozenset(CATALOGUE) - set(route.declares.split(" or ")))
    refused = problem(world.call(api, route, world.here, body_of(route, world.here)), 403, "forbidden")
    assert refused["detail"] == f"This needs the permission {route.declares}."


@pytest.fixture(scope="module")
def machines(world: World) -> tuple[Api, Api]:
    """A service principal that holds nothing, and one that holds everything."""
    realm = world.api.realm
    return world.api.by(realm.principal()), world.api.by(realm.principal(realm.role(None, "*", boundary="realm")))


@pytest.mark.parametrize("route", ADMINISTRATION, ids=str)
def test_a_service_principal_without_a_role(world: World, machines: tuple[Api, Api], route: Route) -> None:
    problem(world.call(machines[0], route, world.here, body_of(route, world.here)), 403, "forbidden")


@pytest.mark.parametrize("route", [route for route in CHANGES if route.operation not in OF_MACHINES], ids=str)
def test_a_service_principal_that_holds_everything_changes_nothing(
    world: World, machines: tuple[Api, Api], route: Route
) -> None:
    refused = problem(world.call(machines[1], route, world.here, body_of(route, world.here)), 403, "forbidden")
    assert refused["detail"] == "This is done by a user."


@pytest.mark.parametrize("route", SELF_SERVICE, ids=str)
def test_a_service_principal_in_self_service(world: World, machines: tuple[Api, Api], route: Route) -> None:
    problem(world.call(machines[1], route, world.here, body_of(route, world.here)), 401, "unauthenticated")


# What is another realm's


@pytest.mark.parametrize("route", ROUTES, ids=str)
def test_another_realm_as_the_path_itself(world: World, route: Route) -> None:
    stranger = world.caller(route)
    body = body_of(route, world.there)
    in_theirs = world.call(replace(stranger, realm_id=world.other.id), route, world.there, body)
    in_none = world.call(replace(stranger, realm_id=ids.new(Prefix.REALM)), route, world.there, body)
    assert problem(in_theirs, 404, "not_found") == problem(in_none, 404, "not_found")


@pytest.mark.parametrize(("route", "name"), PATH_CELLS, ids=str)
def test_another_realms_id_in_the_path(world: World, route: Route, name: str) -> None:
    """One id of the path at a time; the others are right."""
    body = body_of(route, world.here)
    answers = [
        world.call(world.caller(route), route, replace(world.here, **{name: getattr(ids_of, name)}), body)
        for ids_of in (world.there, nothing())
    ]
    assert problem(answers[0], 404, "not_found") == problem(answers[1], 404, "not_found")


def _of_kind(prefix: str, everywhere: Everything, name: str = "") -> str:
    """The id of that kind among the ids of a realm."""
    if prefix == ANY:
        return everywhere.run_id if name == "correlation_id" else everywhere.user_id
    return next(value for value in vars(everywhere).values() if value.startswith(f"{prefix}_"))


def _with(body: Any, way: tuple[str, ...], value: str) -> Any:
    """The body, with that value at the end of the way."""
    if not way:
        return value
    if way[0] == "[]":
        return [_with(None, way[1:], value)]
    return {**(body or {}), way[0]: _with((body or {}).get(way[0]), way[1:], value)}


@pytest.mark.parametrize("cell", BODY_CELLS, ids=str)
def test_another_realms_id_in_the_body(world: World, cell: Cell) -> None:
    body = body_of(cell.route, world.here)
    theirs, missing = (
        world.call(
            world.caller(cell.route),
            cell.route,
            world.here,
            _with(body, cell.way, _of_kind(cell.prefix, ids_of)),
        )
        for ids_of in (world.there, nothing())
    )
    refused = problem(theirs, 404, "not_found")
    assert refused == problem(missing, 404, "not_found")
    assert refused["errors"][0]["path"] == ".".join(cell.way).replace(".[]", "[0]")


@pytest.mark.parametrize("cell", QUERY_CELLS, ids=str)
def test_another_realms_id_in_the_query(world: World, cell: Cell) -> None:
    (name,) = cell.way
    theirs, missing = (
        world.caller(cell.route).get(cell.route.filled(world.here), **{name: _of_kind(cell.prefix, ids_of, name)})
        for ids_of in (world.there, nothing())
    )
    assert theirs.status_code == missing.status_code == 200
    assert theirs.json() == missing.json() == {"items": [], "next_cursor": None}


@pytest.mark.parametrize("route", PAGED, ids=str)
def test_another_realms_cursor(world: World, route: Route) -> None:
    """What their list gives as the cursor behind its first item."""
    other = Api(world.api.client, world.other, None, world.other.id)
    theirs = (
        other.by(world.there.approver_id, "account") if route.declares == "account" else other.by(world.other.admin)
    )
    cursor = theirs.get(route.filled(world.there), limit=1).json()["next_cursor"]
    assert cursor is not None, "everything() has only one of these"
    refused = problem(world.caller(route).get(route.filled(world.here), cursor=cursor), 422, "validation_failed")
    nonsense = problem(world.caller(route).get(route.filled(world.here), cursor="nonsense"), 422, "validation_failed")
    assert refused == nonsense
    assert [error["path"] for error in refused["errors"]] == ["cursor"]


def test_what_a_list_shows_is_of_the_realm_alone(world: World) -> None:
    theirs = {value for value in vars(world.there).values() if "_" in value}
    for route in ADMINISTRATION:
        if route.method == "GET":
            text = world.api.get(route.filled(world.here)).text
            assert not any(id_ in text for id_ in theirs), route
