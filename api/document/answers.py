"""The answers of an operation that are a success: what they are called, their headers, and an example."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from api.document.examples import example_of

Schema = dict[str, Any]

_REQUEST_ID = "#/components/headers/RequestId"

HEADERS: dict[str, Schema] = {
    "RequestId": {
        "description": "The id of the request: as it was sent, or made.",
        "required": True,
        "schema": {"type": "string", "pattern": "^[A-Za-z0-9._-]{1,64}$"},
        "example": "req_5f2b1c7e9d0a4b3c8e6f7a12",
    }
}

MEANINGS: Mapping[str, str] = {
    "200": "Done.",
    "201": "Made.",
    "202": "Asked for; a worker does it.",
    "204": "Done, and there is nothing to tell.",
}


def with_request_id(answer: Schema) -> Schema:
    """Every answer carries it."""
    return {**answer, "headers": {**answer.get("headers", {}), "X-Request-Id": {"$ref": _REQUEST_ID}}}


def complete(operation: Schema, schemas: Mapping[str, Schema]) -> None:
    """Complete an operation in place: its body has an example, and so has each of its answers."""
    for content in operation.get("requestBody", {}).get("content", {}).values():
        content["example"] = example_of(content["schema"], schemas)
    for status, answer in operation["responses"].items():
        if "$ref" not in answer:
            operation["responses"][status] = _completed(status, answer, schemas)


def _completed(status: str, answer: Schema, schemas: Mapping[str, Schema]) -> Schema:
    for content in answer.get("content", {}).values():
        content["example"] = example_of(content["schema"], schemas)
    if answer["description"] == "Successful Response":
        answer["description"] = MEANINGS[status]
    return with_request_id(answer)
