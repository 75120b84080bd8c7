"""What the document gives as an example of a body, the API takes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from api import contract
from db.session import Database
from engine.core.ids import SUFFIX
from engine.lifecycle import revisions
from tests.api_routes import ROUTES, Route
from tests.calling import Api, an_api
from tests.definitions import definition
from tests.everything import Everything, everything
from tests.factories import TestRealm, a_realm

DOCUMENT: dict[str, Any] = json.loads(contract.text())
WITH_BODIES = [route for route in ROUTES if route.takes_body]


@pytest.fixture(scope="module")
def api(module_database: Database) -> Iterator[Api]:
    with an_api(module_database) as api:
        yield api


def example_of(route: Route) -> Any:
    operations = (each for methods in DOCUMENT["paths"].values() for each in methods.values())
    (operation,) = (each for each in operations if each["operationId"] == route.operation)
    return operation["requestBody"]["content"]["application/json"]["example"]


def with_real_ids(example: Any, ids: Everything, realm: TestRealm) -> Any:
    """The same, about things that are there."""
    boundary = "realm" if "role_ids" in json.dumps(example) else "organization"
    here = {
        "usr": ids.user_id,
        "org": ids.organization_id,
        "grp": ids.group_id,
        "rol": realm.role(boundary=boundary),
        "whk": ids.subscription_id,
    }
    return json.loads(re.sub(f"([a-z]{{3}})_{SUFFIX}", lambda match: here[match[1]], json.dumps(example)))


@cache
def stage(database: Database, changing: bool, rejecting: bool) -> tuple[TestRealm, Everything]:
    """A realm, and another where the example of what is made and of what is changed would get in each other's way."""
    realm = a_realm(database)
    return realm, everything(realm)


@pytest.mark.parametrize("route", WITH_BODIES, ids=str)
def test_the_example_of_a_body_is_taken(api: Api, route: Route) -> None:
    realm, ids = stage(api.realm.database, route.method == "PATCH", route.operation == "reject")
    if route.operation == "roll_back_workflow":
        superseded(realm, ids.workflow_id)
    admin = api.at(realm)
    caller = admin.by(ids.approver_id, "account") if route.declares == "account" else admin
    body = with_real_ids(example_of(route), ids, realm)
    answer = caller.call(route.method, route.filled(ids), body, headers={"Idempotency-Key": "example"})
    assert answer.status_code in (200, 201, 202), answer.text


def superseded(realm: TestRealm, workflow_id: str) -> None:
    """Revision 1 is not the published one any more."""
    number = realm.revision(workflow_id, definition())
    with realm.database.begin() as connection:
        revisions.publish(connection, realm.cause, workflow_id, number)
