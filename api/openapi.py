"""The OpenAPI document: FastAPI's, with every problem an operation can answer, and the permission it declares."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fastapi import FastAPI
from fastapi.dependencies.models import Dependant
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute, iter_route_contexts

from api.auth import Declared
from api.problems import KINDS, MEDIA_TYPE

Schema = dict[str, Any]

PROBLEM: Schema = {
    "type": "object",
    "title": "Problem",
    "description": "RFC 9457. `code` is stable; `errors` names the members at fault.",
    "required": ["type", "title", "status", "code"],
    "properties": {
        "type": {"type": "string", "format": "uri"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "code": {"type": "string", "enum": sorted(KINDS)},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["path", "code", "message"],
                "properties": {
                    "path": {"type": "string", "examples": ["definition.steps[2].role_id"]},
                    "code": {"type": "string"},
                    "message": {"type": "string"},
                },
            },
        },
    },
}


def declarations(app: FastAPI) -> Iterator[tuple[str, str, list[Declared]]]:
    """Method, path and what is declared of the caller, for each route of ours. Exactly one is right."""
    for context in iter_route_contexts(app.routes):
        route = context.original_route
        if isinstance(route, APIRoute) and route.include_in_schema:
            for method in sorted(route.methods or ()):
                yield method, str(context.path), list(_declared(context.dependant))


def described(app: FastAPI) -> Schema:
    """The document."""
    document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
    schemas = document["components"]["schemas"]
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    schemas["Problem"] = PROBLEM
    document["components"]["responses"] = {_name(status): _answer(status) for status in _PROBLEM_STATUSES}
    for method, path, (declared,) in declarations(app):
        operation = document["paths"][path][method.lower()]
        operation["x-permission"] = declared.declares
        for status in _statuses(method, declared, operation):
            operation["responses"][str(status)] = {"$ref": f"#/components/responses/{_name(status)}"}
        operation["responses"] = dict(sorted(operation["responses"].items()))
    return document


_PROBLEM_STATUSES = sorted({kind.status for kind in KINDS.values()} - {405})
"""405 is the answer of no operation."""


def _name(status: int) -> str:
    return f"Problem{status}"


def _declared(dependant: Dependant) -> Iterator[Declared]:
    call: object = dependant.call
    if isinstance(call, Declared):
        yield call
    for inner in dependant.dependencies:
        yield from _declared(inner)


def _statuses(method: str, declared: Declared, operation: Schema) -> Iterator[int]:
    yield from (413, 500, 503)
    if declared.declares != "public":
        yield from (401, 403, 404, 422)
    if method != "GET":
        yield 409
    if "requestBody" in operation:
        yield from (400, 415)


def _answer(status: int) -> Schema:
    titles = [f"`{code}`: {kind.title}" for code, kind in KINDS.items() if kind.status == status]
    answer: Schema = {
        "description": "; ".join(titles),
        "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }
    if status == 503:
        answer["headers"] = {"Retry-After": {"description": "Seconds.", "schema": {"type": "integer"}}}
    if status == 401:
        answer["headers"] = {"WWW-Authenticate": {"schema": {"type": "string"}}}
    return answer
