"""Every address that answers at all: none is there beside those that the other tests go through."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from fastapi.routing import APIRoute, iter_route_contexts
from starlette.routing import BaseRoute, Mount, Route

from api.app import PREFIX, create_app
from api.openapi import declarations
from tests.calling import Api, problem

BESIDES = {
    ("GET", "/docs"),
    ("GET", "/docs/oauth2-redirect"),
    ("GET", "/openapi.json"),
    ("HEAD", "/openapi.json"),
    ("HEAD", "/health/live"),
    ("HEAD", "/health/ready"),
    ("any", "/static-offline-docs/..."),
}
"""What is not in the document. None of it knows a realm."""


def addresses(routes: Sequence[BaseRoute], below: str = "") -> Iterator[tuple[str, str]]:
    """Method and path of everything that is routed, whatever class it is of."""
    for context in iter_route_contexts(routes):
        route, path = context.original_route, f"{below}{context.path}"
        if isinstance(route, APIRoute | Route):
            yield from ((method, path) for method in context.methods or ("any",))
        elif isinstance(route, Mount):
            yield "any", f"{path}/..."
            yield from addresses(route.routes, path)
        else:
            yield "any", f"{type(route).__name__} {path}"


def test_every_address_is_one_that_declares_its_caller_or_is_known_to_have_none() -> None:
    app = create_app()
    declaring = [(method, path) for method, path, _ in declarations(app)]
    found = list(addresses(app.routes))
    assert sorted(found) == sorted([*declaring, *BESIDES])
    assert len(found) == len(set(found)), "an address is routed twice"
    assert not any(path.startswith(PREFIX) for _, path in BESIDES)


def test_no_more_is_public_than_these_operations() -> None:
    app = create_app()
    public = {(method, path) for method, path, (declared,) in declarations(app) if declared.audience is None}
    operations = {app.openapi()["paths"][path][method.lower()]["operationId"] for method, path in public}
    assert operations == {"is_live", "is_ready", "get_keys", "get_metrics"}
    assert all(path.startswith(PREFIX) for method, path, _ in declarations(app) if (method, path) not in public)


@pytest.mark.parametrize("path", ["x", "", "swagger-ui.css"])
def test_the_files_of_the_documentation_are_read_and_nothing_else(api: Api, path: str) -> None:
    for method in ("POST", "DELETE", "OPTIONS"):
        refused = api.client.request(method, f"/static-offline-docs/{path}")
        problem(refused, 405, "method_not_allowed")
        assert refused.headers["allow"] == "GET, HEAD"


@pytest.mark.parametrize("path", ["/health/live", "/health/ready"])
def test_health_may_be_asked_for_by_its_head_alone(api: Api, path: str) -> None:
    answer = api.client.head(path)
    assert (answer.status_code, answer.content) == (200, b"")
    refused = api.client.post(path)
    problem(refused, 405, "method_not_allowed")
    assert refused.headers["allow"] == "GET, HEAD"
