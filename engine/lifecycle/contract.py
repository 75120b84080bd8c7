"""The contract of definitions, `api/contracts/definition.v1.json`: generated from the models, so that the two cannot part.

    python -m engine.lifecycle.contract            writes the file
    python -m engine.lifecycle.contract --check    exit status 1 unless the file is what would be written

The prose is in `contract_prose`. What JSON Schema cannot say (the bounds of durations, ids that differ between steps, the
size of the whole) is said there in words, and checked by `engine.lifecycle.definition` alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from engine.core.durations import PATTERN
from engine.core.generated import write_or_check
from engine.lifecycle.contract_prose import DEFINITION, DURATION, MEMBERS, OBJECTS
from engine.lifecycle.definition import Definition

ROOT = Path(__file__).parents[2]
CONTRACT = ROOT / "api" / "contracts" / "definition.v1.json"
EXAMPLE = ROOT / "examples" / "onboarding.json"

Schema = dict[str, Any]


class _Plain(GenerateJsonSchema):
    """JSON Schema as a person would write it: no titles made of names, no `null` and no default for what is left out."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        return (
            self.generate_inner(schema["schema"]) if schema.get("default") is None else super().default_schema(schema)
        )

    def tagged_union_schema(self, schema: core_schema.TaggedUnionSchema) -> JsonSchemaValue:
        """Without `discriminator`, which is OpenAPI's. The constant `type` of each branch says the same."""
        return {"oneOf": super().tagged_union_schema(schema)["oneOf"]}


def contract() -> Schema:
    """The schema of a definition, draft 2020-12."""
    generated = Definition.model_json_schema(schema_generator=_Plain)
    objects: dict[str, Schema] = generated.pop("$defs")
    names = {name: _name_of(name, schema) for name, schema in objects.items()}
    for schema in _within([generated, objects]):
        _polish(schema, names)
    definitions = {names[name]: _told(schema, OBJECTS[names[name]]) for name, schema in objects.items()}
    definitions["duration"] = {"type": "string", "pattern": PATTERN, "description": DURATION}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "urn:tenure:contract:definition:1",
        "title": "Workflow definition, version 1",
        **_told(generated, DEFINITION),
        "$defs": dict(sorted(definitions.items())),
        "examples": [json.loads(EXAMPLE.read_text())],
    }


def text() -> str:
    """The contract as it stands in its file."""
    return json.dumps(contract(), indent=2, ensure_ascii=False) + "\n"


def _name_of(name: str, schema: Schema) -> str:
    """Objects are called what their `type` is called; the one without a type is the retry policy."""
    return str(schema["properties"]["type"]["const"]) if "type" in schema["properties"] else "retry_policy"


def _within(value: object) -> Iterator[Schema]:
    """Every object inside, the innermost first."""
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for item in inside:
        yield from _within(item)
    if isinstance(value, dict):
        yield value


def _polish(schema: Schema, names: dict[str, str]) -> None:
    if isinstance(reference := schema.get("$ref"), str) and reference.startswith("#/$defs/"):
        name = reference.removeprefix("#/$defs/")
        schema["$ref"] = f"#/$defs/{names.get(name, name)}"
    if schema.get("pattern") == PATTERN:
        del schema["pattern"], schema["type"]
        schema["$ref"] = "#/$defs/duration"


def _told(schema: Schema, description: str) -> Schema:
    """An object with its description, and one for each of its members: what it means, then its bounds."""
    schema.pop("title", None)
    for name, member in schema["properties"].items():
        if meaning := MEMBERS.get(name):
            bounds = member.get("description")
            member["description"] = f"{meaning} {bounds}" if bounds else meaning
    return {"description": description, **{key: value for key, value in schema.items() if key != "description"}}


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line. Returns the exit status."""
    return write_or_check("engine.lifecycle.contract", CONTRACT, text, arguments)


if __name__ == "__main__":
    raise SystemExit(main())
