"""The document as a person would write it: no titles made of names, no null where nothing can be null, and for each member
and parameter what it means, which kind of id it is, and an example."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from api.document.examples import Schema, example_of
from api.document.kinds import IDS, OWN_IDS, SAME_AS, pattern_of
from api.document.meanings import MEANINGS, PARAMETERS
from api.document.samples import SAMPLES
from engine.core.ids import Prefix

_PAGE = re.compile(r"Page_([A-Za-z]+)_$")

_BOUNDS: Mapping[str, str] = {"ge": "minimum", "le": "maximum"}
"""Pydantic's own words, where it does not know that a value is a number."""


def name_pages(document: Schema) -> None:
    """`Page_Run_` is called RunPage, in the components and wherever it is pointed to."""
    for schema in _within(document):
        if "$ref" in schema:
            schema["$ref"] = _PAGE.sub(r"\1Page", schema["$ref"])
    schemas = document["components"]["schemas"]
    for name in list(schemas):
        schemas[_PAGE.sub(r"\1Page", name)] = schemas.pop(name)


def polish_components(schemas: dict[str, Schema]) -> None:
    """Complete the components in place."""
    for schema in _within(schemas):
        _spell_out(schema)
    for name, schema in schemas.items():
        schema.pop("title", None)
        for member, described in schema.get("properties", {}).items():
            _complete(described, SAME_AS.get(name, name), member, schemas)


def polish_parameter(parameter: Schema, schemas: Mapping[str, Schema]) -> None:
    """Complete a parameter in place. What is left out is left out: no parameter is null."""
    schema, name = parameter["schema"], parameter["name"]
    branches = schema.pop("anyOf", [{}])
    schema |= branches[0]
    _spell_out(schema)
    schema.pop("title", None)
    told = schema.pop("description", None)
    meanings = MEANINGS if parameter["in"] == "path" else {**MEANINGS, **PARAMETERS}
    if meaning := parameter.get("description") or told or meanings.get(name):
        parameter["description"] = meaning
    _identify(schema, "", name)
    said = schema.pop("examples", [])
    parameter["example"] = (_known(schema, "", name) or said or [example_of(schema, schemas)])[0]


def _complete(schema: Schema, owner: str, name: str, schemas: Mapping[str, Schema]) -> None:
    schema.pop("title", None)
    if "description" not in schema and (meaning := MEANINGS.get(f"{owner}.{name}", MEANINGS.get(name))):
        schema["description"] = meaning
    _identify(schema, owner, name)
    if "examples" not in schema and "const" not in schema and (known := _known(schema, owner, name)):
        schema["examples"] = known


def _identify(schema: Schema, owner: str, name: str) -> None:
    """Answers hold ids as plain text: say of which kind they are."""
    prefix = OWN_IDS.get(owner) if name == "id" else IDS.get(name)
    for branch in schema.get("anyOf", [schema]):
        if prefix is not None and branch.get("type") == "string" and "pattern" not in branch:
            branch["pattern"] = pattern_of(prefix)
    if name == "approvers" and "pattern" not in schema.get("items", {}):
        schema["items"]["pattern"] = pattern_of(Prefix.USER)


def _known(schema: Schema, owner: str, name: str) -> list[Any]:
    """The example in `samples`, if this is a word or a few, and not an object of the same name."""
    if {"$ref", "properties"} & set(schema):
        return []
    words = next((branch["enum"] for branch in schema.get("anyOf", [schema]) if "enum" in branch), None)
    for key in (f"{owner}.{name}", name):
        if key in SAMPLES and (words is None or SAMPLES[key] in words):
            return [SAMPLES[key]]
    return []


def _spell_out(schema: Schema) -> None:
    for word, spelled in _BOUNDS.items():
        if word in schema:
            schema[spelled] = schema.pop(word)


def _within(value: object) -> Iterator[Schema]:
    """Every object inside, the innermost first."""
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _within(item)
    if isinstance(value, dict):
        yield value
