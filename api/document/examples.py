"""An example of anything the document describes, made of the examples of its members: there is one place for each."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from api.document.kinds import id_of
from engine.core.ids import Prefix

Schema = dict[str, Any]

MOMENT = "2026-10-11T09:00:00Z"

_BARE: Mapping[str, Any] = {"string": "text", "integer": 1, "object": {}}

_ID = re.compile(r"\^([a-z]{3})_\[")


def example_of(schema: Schema, schemas: Mapping[str, Schema]) -> Any:
    """An example that the schema takes; `schemas` are the components. What has none of its own gets a bare one of its type,
    and fails the tests."""
    if "examples" in schema:
        return schema["examples"][0]
    if "const" in schema or "enum" in schema:
        return schema["const"] if "const" in schema else schema["enum"][0]
    if "$ref" in schema:
        return example_of(schemas[schema["$ref"].rpartition("/")[2]], schemas)
    for several in ("oneOf", "anyOf", "allOf"):
        if several in schema:
            return example_of(schema[several][0], schemas)
    return _of_type(schema, schemas)


def _of_type(schema: Schema, schemas: Mapping[str, Schema]) -> Any:
    match schema.get("type"):
        case "object" if "properties" in schema:
            return {name: example_of(member, schemas) for name, member in schema["properties"].items()}
        case "array":
            return [example_of(schema["items"], schemas)]
        case "boolean":
            return False
        case "string" if schema.get("format") == "date-time":
            return MOMENT
        case "string" if identified := _ID.match(schema.get("pattern", "")):
            return id_of(Prefix(identified[1]))
    return _BARE.get(str(schema.get("type")))
