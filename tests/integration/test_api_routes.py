"""What is true of every route: its declaration, and what that takes. Who is turned away: test_api_matrix.py."""

from __future__ import annotations

from collections.abc import Callable

import httpx
import pytest
from fastapi.routing import APIRoute, iter_route_contexts

from api.app import create_app
from api.bodies import StrictRoute
from api.openapi import declarations
from engine.directory.permissions import CATALOGUE
from tests.api_routes import BODIES, PERMISSIONS, ROUTES, Route, body_of
from tests.calling import Api, problem
from tests.everything import Everything, everything, nothing
from tests.factories import TestRealm, a_realm

Holders = Callable[[frozenset[str]], Api]

ADMINISTRATION = [route for route in ROUTES if route.declares != "account"]


@pytest.fixture(scope="module")
def here(api: Api) -> Everything:
    return everything(api.realm)


@pytest.fixture(scope="module")
def elsewhere(api: Api) -> tuple[TestRealm, Everything]:
    realm = a_realm(api.realm.database)
    return realm, everything(realm)


@pytest.fixture(scope="module")
def holders(api: Api) -> Holders:
    """A caller who holds exactly these permissions, realm-wide."""
    made: dict[frozenset[str], Api] = {}

    def holder(permissions: frozenset[str]) -> Api:
        if permissions not in made:
            role = api.realm.role(None, *sorted(permissions), boundary="realm")
            made[permissions] = api.by(api.realm.holder(role))
        return made[permissions]

    return holder


def called(api: Api, route: Route, path_ids: Everything, body_ids: Everything) -> httpx.Response:
    return api.call(route.method, route.filled(path_ids), body_of(route, body_ids), headers=route.headers)


def test_every_route_declares_exactly_one_thing_of_its_caller() -> None:
    found = list(declarations(create_app()))
    assert len(found) > 50
    for method, path, declared in found:
        assert len(declared) == 1, f"{method} {path} declares {[each.declares for each in declared]}"
        for permission in declared[0].declares.split(" or "):
            assert permission in CATALOGUE or permission in ("account", "public"), f"{method} {path}: {permission}"


def test_each_route_declares_what_it_should() -> None:
    assert {route.operation: route.declares for route in ROUTES} == PERMISSIONS


def test_every_route_reads_its_body_strictly() -> None:
    for context in iter_route_contexts(create_app().routes):
        if isinstance(context.original_route, APIRoute) and context.original_route.include_in_schema:
            assert isinstance(context.original_route, StrictRoute), context.path


def test_what_is_public_is_not_of_a_realm() -> None:
    assert {route.declares for route in ROUTES} & {"public"} == set()


def test_every_route_with_a_body_has_one_to_be_tested_with() -> None:
    assert {route.operation for route in ROUTES if route.takes_body} == set(BODIES)


@pytest.mark.parametrize("route", ADMINISTRATION, ids=str)
def test_what_the_route_declares_is_what_it_takes(holders: Holders, route: Route) -> None:
    """With that alone the caller gets as far as the things that are not there."""
    caller = holders(frozenset(route.declares.split(" or ")))
    answer = called(caller, route, nothing(), nothing())
    assert answer.status_code not in (401, 403), answer.text
    assert answer.status_code < 500


def test_a_definition_that_names_things_of_another_realm_is_told_the_same_faults_as_one_that_names_nothing(
    api: Api, here: Everything, elsewhere: tuple[TestRealm, Everything]
) -> None:
    for operation in ("stage_revision", "validate_definition"):
        (route,) = [route for route in ROUTES if route.operation == operation]
        theirs = called(api, route, here, elsewhere[1])
        refused = problem(theirs, 422, "validation_failed")
        assert refused == problem(called(api, route, here, nothing()), 422, "validation_failed")
        assert [error["path"] for error in refused["errors"]] == [
            "definition.steps[0].role_id",
            "definition.steps[0].organization_id",
            "definition.steps[1].group_id",
            "definition.steps[1].organization_id",
            "definition.steps[2].approvers[0]",
            "definition.steps[3].subscription_id",
        ]


FILTERS = [
    ("/workflow-runs", "workflow_id", "workflow_id"),
    ("/workflow-runs", "subject_id", "user_id"),
    ("/role-assignments", "user_id", "user_id"),
    ("/role-assignments", "role_id", "role_id"),
    ("/role-assignments", "organization_id", "organization_id"),
    ("/groups", "organization_id", "organization_id"),
    ("/audit-events", "target_id", "user_id"),
    ("/audit-events", "correlation_id", "run_id"),
]


@pytest.mark.parametrize(("path", "name", "kind"), FILTERS)
def test_a_filter_with_an_id_of_another_realm_finds_nothing(
    api: Api, here: Everything, elsewhere: tuple[TestRealm, Everything], path: str, name: str, kind: str
) -> None:
    assert api.get(path, **{name: getattr(here, kind)}).json()["items"] != []
    assert api.get(path, **{name: getattr(elsewhere[1], kind)}).json() == {"items": [], "next_cursor": None}
