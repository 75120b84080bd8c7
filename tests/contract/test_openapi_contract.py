"""The contract of the API is what the routes say, and complete enough to generate a client from."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from openapi_spec_validator import OpenAPIV31SpecValidator
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

from api import contract
from api.app import create_app
from api.openapi import BESIDES, NEVER_409, declarations
from api.problems import KINDS
from engine.core.ids import Prefix, is_id

Json = dict[str, Any]

DOCUMENT: Json = json.loads(contract.text())
SCHEMAS: Json = DOCUMENT["components"]["schemas"]
OPERATIONS: dict[str, Json] = {
    operation["operationId"]: operation for methods in DOCUMENT["paths"].values() for operation in methods.values()
}
REGISTRY: Registry[Any] = Registry().with_resource("urn:api", Resource.from_contents(DOCUMENT, DRAFT202012))
FORMATS = Draft202012Validator.FORMAT_CHECKER


def absolute(value: Any) -> Any:
    """The same schema, pointing into the document from outside of it."""
    if isinstance(value, dict):
        return {
            key: f"urn:api{item}" if key == "$ref" and str(item).startswith("#") else absolute(item)
            for key, item in value.items()
        }
    return [absolute(item) for item in value] if isinstance(value, list) else value


def faults(schema: Json, example: Any) -> list[str]:
    validator = Draft202012Validator(absolute(schema), registry=REGISTRY, format_checker=FORMATS)
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(example)]


def exemplified() -> Iterator[tuple[str, Json, Any]]:
    """Where, a schema, and what is said to be an example of it; `...` where nothing is."""
    for name, operation in OPERATIONS.items():
        for parameter in operation.get("parameters", ()):
            yield f"{name} {parameter['name']}", parameter["schema"], parameter.get("example", ...)
        for content in operation.get("requestBody", {}).get("content", {}).values():
            yield f"{name} body", content["schema"], content.get("example", ...)
        for status, answer in operation["responses"].items():
            for content in answer.get("content", {}).values():
                yield f"{name} {status}", content["schema"], content.get("example", ...)
    for name, answer in DOCUMENT["components"]["responses"].items():
        for content in answer["content"].values():
            for code, example in content["examples"].items():
                yield f"{name} {code}", content["schema"], example["value"]
    for name, schema in SCHEMAS.items():
        for member, described in schema.get("properties", {}).items():
            for example in described.get("examples", ()):
                yield f"{name}.{member}", described, example


def members() -> Iterator[tuple[str, str, Json]]:
    """Component, name and schema of every member."""
    for name, schema in SCHEMAS.items():
        yield from ((name, member, described) for member, described in schema.get("properties", {}).items())


def answers(operation: Json) -> Iterator[tuple[str, Json]]:
    for status, answer in operation["responses"].items():
        name = answer.get("$ref", "").rpartition("/")[2]
        yield status, DOCUMENT["components"]["responses"][name] if name else answer


def test_the_contract_is_what_the_routes_say() -> None:
    assert contract.main(["--check"]) == 0


def test_a_contract_that_differs_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    changed = tmp_path / "openapi.v1.json"
    changed.write_text(contract.text().replace("Tenure", "Other", 1))
    monkeypatch.setattr(contract, "CONTRACT", changed)
    assert contract.main(["--check"]) == 1
    assert "python -m api.contract" in capsys.readouterr().err


def test_the_document_is_openapi_3_1() -> None:
    OpenAPIV31SpecValidator(DOCUMENT).validate()
    assert DOCUMENT["openapi"].startswith("3.1.")
    assert DOCUMENT["servers"]
    assert DOCUMENT["info"].keys() >= {"title", "summary", "description", "version"}


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_says_what_it_does_who_may_call_and_what_it_takes(name: str) -> None:
    operation = OPERATIONS[name]
    assert re.fullmatch(r"[a-z]+(_[a-z]+)*", name)
    assert operation["summary"]
    assert operation["description"]
    assert operation["x-permission"]
    assert set(operation["tags"]) <= {tag["name"] for tag in DOCUMENT["tags"] if tag["description"]}
    for parameter in operation.get("parameters", ()):
        assert parameter["description"], parameter["name"]
        assert "null" not in json.dumps(parameter["schema"]), "no parameter is null"


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_answer_is_described_and_has_the_headers_it_has(name: str) -> None:
    successes = 0
    for status, answer in answers(OPERATIONS[name]):
        assert answer["description"] not in ("", "Successful Response"), status
        headers = {"X-Request-Id"} | {"401": {"WWW-Authenticate"}}.get(status, set())
        headers |= {"Retry-After"} if status in ("429", "503") else set()
        assert set(answer["headers"]) == headers, status
        assert ("content" in answer) is (status != "204")
        if status >= "400":
            assert list(answer["content"]) == ["application/problem+json"], status
        successes += status.startswith("2")
    assert successes >= 1


def test_names_are_unique() -> None:
    names = [operation["operationId"] for methods in DOCUMENT["paths"].values() for operation in methods.values()]
    assert len(names) == len(set(names)) > 50


def test_each_operation_names_the_token_that_its_route_asks_for() -> None:
    declared: dict[str, list[Json]] = {"public": [], "account": [{"account": []}]}
    for method, path, (each,) in declarations(create_app()):
        security = DOCUMENT["paths"][path][method.lower()]["security"]
        assert security == declared.get(each.declares, [{"admin": []}]), f"{method} {path}"


def test_every_code_is_exemplified_with_its_own_status() -> None:
    found: dict[str, Json] = {}
    for answer in DOCUMENT["components"]["responses"].values():
        for content in answer["content"].values():
            found |= {code: example["value"] for code, example in content["examples"].items()}
    assert set(found) == set(KINDS) - {"method_not_allowed"}
    for code, problem in found.items():
        assert (problem["code"], problem["status"]) == (code, KINDS[code].status)


def test_everything_has_an_example_that_its_schema_takes() -> None:
    wrong = {where: "none" if example is ... else faults(schema, example) for where, schema, example in exemplified()}
    assert {where: fault for where, fault in wrong.items() if fault} == {}


def test_every_component_and_every_member_says_what_it_means() -> None:
    """What is missing here is written in api/document/meanings.py, or where the member is declared."""
    silent = [name for name, schema in SCHEMAS.items() if not schema.get("description")]
    silent += [f"{owner}.{name}" for owner, name, schema in members() if not {"description", "$ref"} & set(schema)]
    assert silent == []


def test_every_member_has_an_example_of_its_own() -> None:
    """What is missing here is written in api/document/samples.py, or where the member is declared."""
    bare = [f"{owner}.{name}" for owner, name, schema in members() if not says_an_example(schema)]
    assert bare == []


def says_an_example(schema: Json) -> bool:
    """By itself, or by being made of others, an id, a moment or one of a few words."""
    first = (schema.get("anyOf") or schema.get("oneOf") or [schema])[0]
    keys = {"examples", "const", "enum", "$ref", "items", "pattern", "format", "properties"}
    return bool(keys & (set(schema) | set(first))) or first.get("type") == "boolean"


NO_KIND = {"actor_id", "target_id", "request_id", "correlation_id", "step_id", "plugin_id", "kid"}
"""Ids of more than one kind, or of no kind of ours."""


def test_every_id_says_of_which_kind_it_is_and_its_example_is_one() -> None:
    found = 0
    for owner, name, schema in members():
        if name in NO_KIND or not re.search(r"(^|_)id$", name) or owner.endswith("Step"):
            continue
        (text,) = (branch for branch in schema.get("anyOf", [schema]) if branch["type"] == "string")
        prefix = re.match(r"\^([a-z]{3})_\[", text.get("pattern", ""))
        assert prefix, f"{owner}.{name}"
        assert all(is_id(example, Prefix(prefix[1])) for example in schema.get("examples", ())), f"{owner}.{name}"
        found += 1
    assert found > 50
    for where, _, example in exemplified():
        for word in re.findall(r'"([a-z]{3}_0[0-9a-z]{20,})"', json.dumps(example, default=str)):
            assert is_id(word, Prefix(word[:3])), f"{where}: {word}"


def test_what_may_be_anything_says_that_it_may() -> None:
    for owner, name, schema in members():
        for branch in schema.get("anyOf", [schema]):
            assert branch, f"{owner}.{name}"
            if branch.get("type") == "object" and not {"properties", "oneOf"} & set(branch):
                typed = isinstance(branch.get("additionalProperties"), dict)
                assert typed or "free form" in schema["description"], f"{owner}.{name}"


def test_no_answer_shows_a_secret_but_those_that_make_one() -> None:
    shows = [name for name, each in OPERATIONS.items() if "SubscriptionWithSecret" in json.dumps(each["responses"])]
    assert sorted(shows) == ["create_subscription", "rotate_secret"]


def test_what_is_said_of_single_operations_is_said_of_operations_that_are_there() -> None:
    assert (set(BESIDES) | NEVER_409) <= set(OPERATIONS)
    for name, statuses in BESIDES.items():
        assert {str(status) for status in statuses} <= set(OPERATIONS[name]["responses"])
    for name in NEVER_409:
        assert "409" not in OPERATIONS[name]["responses"]
