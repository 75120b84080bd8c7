"""The OpenAPI document: FastAPI's, with every answer an operation can give, the permission it declares, and what the parts in
`api.document` add. Complete enough to generate a client from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute, iter_route_contexts

from api.auth import Declared, Permitted, declared_by
from api.document import answers, callers, definition, polish, problems, words

Schema = dict[str, Any]

BESIDES: Mapping[str, tuple[int, ...]] = {
    "enable_workflow": (422,),  # what the definition names is gone
    "get_metrics": (404,),  # the operator has switched it off
    "publish_revision": (422,),
}
"""Refusals that the form of an operation does not tell."""

NEVER_409 = frozenset(
    {
        "change_settings",
        "delete_subscription",
        "disable_service_principal",
        "disable_subscription",
        "enable_service_principal",
        "reactivate_user",
        "remove_group_member",
        "remove_group_role",
        "resume_subscription",
        "rotate_secret",
        "suspend_user",
        "validate_definition",
    }
)
"""Operations that change something, or look as if, whatever the present state is."""


def declarations(app: FastAPI) -> Iterator[tuple[str, str, list[Declared]]]:
    """Method, path and what is declared of the caller, for each route of ours. Exactly one is right."""
    for context in iter_route_contexts(app.routes):
        route = context.original_route
        if isinstance(route, APIRoute) and route.include_in_schema:
            for method in sorted(route.methods or ()):
                yield method, str(context.path), list(declared_by(context.dependant))


def described(app: FastAPI) -> Schema:
    """The document."""
    document = get_openapi(
        title=app.title,
        version=app.version,
        summary=app.description,
        description=words.INTRODUCTION,
        routes=app.routes,
        tags=[{"name": name, "description": meaning} for name, meaning in words.TAGS.items()],
        servers=[{"url": "/", "description": "Where this document is served."}],
    )
    polish.name_pages(document)
    schemas = document["components"]["schemas"]
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    schemas |= problems.schemas()
    definition.insert(schemas)
    polish.polish_components(schemas)
    document["components"] |= {
        "responses": problems.answers(),
        "headers": answers.HEADERS,
        "securitySchemes": callers.SCHEMES,
    }
    for method, path, (declared,) in declarations(app):
        _complete(document["paths"][path][method.lower()], method, declared, schemas)
    document["webhooks"] = definition.webhooks(schemas)
    return document


def _complete(operation: Schema, method: str, declared: Declared, schemas: dict[str, Schema]) -> None:
    """Say who may call, what is taken and what is answered."""
    operation["x-permission"] = declared.declares
    operation["security"] = callers.security(declared)
    operation["description"] = f"{operation['description']}\n\n{callers.told(declared)}"
    for parameter in operation.get("parameters", ()):
        polish.polish_parameter(parameter, schemas)
    refusals = {str(status): problems.reference(status) for status in _refusals(operation, method, declared)}
    successes = {status: answer for status, answer in operation["responses"].items() if status < "400"}
    operation["responses"] = dict(sorted({**successes, **refusals}.items()))
    answers.complete(operation, schemas)


def _refusals(operation: Schema, method: str, declared: Declared) -> set[int]:
    """Every status that is no success."""
    statuses = {400, 413, 431, 500, 503}
    body = "requestBody" in operation
    if declared.declares != "public":
        statuses |= {401, 404, 429}
    if isinstance(declared, Permitted):
        statuses.add(403)
    if body:
        statuses |= {408, 415}
    if body or any(parameter["in"] != "path" for parameter in operation.get("parameters", ())):
        statuses.add(422)
    name = operation["operationId"]
    if method != "GET" and name not in NEVER_409:
        statuses.add(409)
    return statuses.union(BESIDES.get(name, ()))
