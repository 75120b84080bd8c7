"""The contracts of definitions and of step calls, as components of the document.

Their files name parts of their own by `#/$defs/`, which few generators of clients follow: here every part is a component.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from api.document.examples import example_of

Schema = dict[str, Any]

CONTRACTS = Path(__file__).parents[1] / "contracts"
DEFINITION = "Definition"
STEP_CALL = "StepCall"

HELD_BY: Mapping[str, str] = {"DefinitionBody": "definition", "Revision": "definition"}
"""Components, and their member that is a definition."""

_KINDS: Mapping[str, str] = {"triggers": "Trigger", "steps": "Step", "select": "Selector"}
"""By the member that takes one of them: what its kinds are called together."""


def components() -> dict[str, Schema]:
    """By the name of the component."""
    definition, step_call = _read("definition.v1.json"), _read("step-call.v1.json")
    parts: dict[str, Schema] = definition.pop("$defs")
    names = _names(definition, parts)
    for schema in _within([definition, parts]):
        if "oneOf" in schema:
            _tell_apart(schema, parts, names)
        if "$ref" in schema:
            schema["$ref"] = _reference(names, schema["$ref"])
    named = {names[part]: schema for part, schema in sorted(parts.items())}
    return {DEFINITION: definition, **named, STEP_CALL: step_call}


def insert(schemas: dict[str, Schema]) -> None:
    """Put the components in, and point to them where the routes only know that there is an object."""
    schemas |= components()
    for name, member in HELD_BY.items():
        if name in schemas:
            schemas[name]["properties"][member] = {"$ref": f"#/components/schemas/{DEFINITION}"}


def webhooks(schemas: Mapping[str, Schema]) -> dict[str, Schema]:
    """What we call, where the document says what others call."""
    content = {"schema": {"$ref": f"#/components/schemas/{STEP_CALL}"}}
    content["example"] = example_of(content["schema"], schemas)
    call: Schema = {
        "operationId": "receive_step_call",
        "tags": ["webhooks"],
        "summary": "A step of type call_webhook",
        "description": schemas[STEP_CALL]["description"],
        "security": [],
        "requestBody": {"required": True, "content": {"application/json": content}},
        "responses": {
            "2XX": {"description": "The step is done."},
            "410": {"description": "The step has failed. It is not tried again."},
            "default": {"description": "4XX, but for 408 and 429: the step has failed. Else it is tried again."},
        },
    }
    return {"workflow.step": {"post": call}}


def _read(name: str) -> Schema:
    schema: Schema = json.loads((CONTRACTS / name).read_text())
    return {key: value for key, value in schema.items() if key not in ("$schema", "$id", "title")}


def _names(definition: Schema, parts: dict[str, Schema]) -> dict[str, str]:
    """`assign_role` is one of the steps: AssignRoleStep."""
    names = {part: _camel(part) for part in parts}
    for member, kind in _KINDS.items():
        for schema in _within([definition, parts]):
            one = schema.get("properties", {}).get(member, {})
            for branch in one.get("items", one).get("oneOf", ()):
                part = branch["$ref"].removeprefix("#/$defs/")
                names[part] = _camel(part) + kind
    return names


def _tell_apart(schema: Schema, parts: dict[str, Schema], names: dict[str, str]) -> None:
    """The member `type` says which of the kinds it is."""
    kinds = [branch["$ref"].removeprefix("#/$defs/") for branch in schema["oneOf"]]
    mapping = {
        parts[kind]["properties"]["type"]["const"]: _reference(names, f"#/$defs/{kind}") for kind in sorted(kinds)
    }
    schema["discriminator"] = {"propertyName": "type", "mapping": mapping}


def _reference(names: dict[str, str], reference: str) -> str:
    return f"#/components/schemas/{names[reference.removeprefix('#/$defs/')]}"


def _camel(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))


def _within(value: object) -> Iterator[Schema]:
    """Every object inside."""
    if isinstance(value, dict):
        yield value
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _within(item)
