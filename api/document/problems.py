"""The answers that are no success: one a status, with an example of each code that it may carry."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from api.document.answers import with_request_id
from api.problems import KINDS, MEDIA_TYPE, TYPE, Problem, error_at

Schema = dict[str, Any]

_PROBLEM: Schema = {
    "type": "object",
    "description": "RFC 9457. `code` is stable; `errors` names the members at fault.",
    "required": ["type", "title", "status", "code"],
    "properties": {
        "type": {"type": "string", "format": "uri", "examples": ["urn:tenure:problem:validation_failed"]},
        "title": {"type": "string"},
        "status": {"type": "integer", "examples": [422]},
        "detail": {"type": "string"},
        "code": {"type": "string", "enum": sorted(KINDS), "examples": ["validation_failed"]},
        "errors": {"type": "array", "items": {"$ref": "#/components/schemas/ProblemError"}},
    },
}

_ERROR: Schema = {
    "type": "object",
    "description": "One member at fault.",
    "required": ["path", "code", "message"],
    "properties": {
        "path": {"type": "string", "examples": ["definition.steps[2].role_id"]},
        "code": {"type": "string"},
        "message": {"type": "string"},
    },
}

_ERRORS: Mapping[str, Mapping[str, str]] = {
    "validation_failed": error_at("display_name", "required", "is required"),
    "invalid_destination": error_at("url", "invalid_destination", "must begin with https://"),
    "grant_ceiling_exceeded": error_at("definition.steps[2]", "grant_ceiling_exceeded", "the role holds more than you"),
}
"""Codes that name a member at fault: one, by way of example."""

_HEADERS: Mapping[int, tuple[str, str, Schema]] = {
    401: ("WWW-Authenticate", "How to authenticate (RFC 6750).", {"type": "string", "examples": ["Bearer"]}),
    429: ("Retry-After", "Seconds to wait.", {"type": "integer", "minimum": 1, "examples": [30]}),
    503: ("Retry-After", "Seconds to wait.", {"type": "integer", "minimum": 1, "examples": [1]}),
}
"""Of each status: what else it says."""


def schemas() -> dict[str, Schema]:
    """The components that the answers are made of."""
    return deepcopy({"Problem": _PROBLEM, "ProblemError": _ERROR})


def reference(status: int) -> Schema:
    """To the answer of that status."""
    return {"$ref": f"#/components/responses/Problem{status}"}


def answers() -> dict[str, Schema]:
    """The components, by their names. 405 is the answer of no operation."""
    return {f"Problem{status}": _answer(status) for status in sorted({kind.status for kind in KINDS.values()} - {405})}


def _answer(status: int) -> Schema:
    codes = {code: kind.title for code, kind in KINDS.items() if kind.status == status}
    examples = {code: {"summary": title, "value": _example(code)} for code, title in codes.items()}
    schema = {"$ref": "#/components/schemas/Problem"}
    answer: Schema = {
        "description": "; ".join(f"`{code}`: {title}" for code, title in codes.items()),
        "content": {MEDIA_TYPE: {"schema": schema, "examples": examples}},
    }
    if status in _HEADERS:
        name, description, value = _HEADERS[status]
        answer["headers"] = {name: {"description": description, "required": True, "schema": value}}
    return with_request_id(answer)


def _example(code: str) -> Schema:
    """As it is answered."""
    errors = [_ERRORS[code]] if code in _ERRORS else ()
    return dict(Problem(code, errors=errors).marshal(uri=TYPE))
