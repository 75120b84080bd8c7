"""The contract of definitions and the model that reads them say the same, except what JSON Schema has no words for."""

from __future__ import annotations

import json
import re
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from jsonschema.validators import extend

from engine.core.errors import DefinitionInvalid, Fault
from engine.lifecycle.contract import CONTRACT, contract, main, text
from engine.lifecycle.definition import parse
from tests.definitions import SELECTORS, STEPS, Json, definition, id_of, of_every_kind, onboarding, schedule, step

BEYOND_JSON_SCHEMA = {
    "duration_range": "JSON Schema cannot compare durations: their bounds are told in the descriptions",
    "unique": "of the ids of steps: JSON Schema compares whole items only. Lists of words it does compare",
    "size": "JSON Schema does not know the canonical form",
}
"""The rules that only the model keeps. A fraction of zero is the other: `1.0` is an integer for JSON Schema."""


SCHEMA = contract()


def _pattern(validator: Any, pattern: str, instance: Any, schema: Any) -> Any:
    """Patterns as ECMA-262 has them, which JSON Schema names: Python's `$` lets a newline follow."""
    if isinstance(instance, str) and not re.search(pattern.replace("$", r"\Z"), instance):
        yield from Draft202012Validator.VALIDATORS["pattern"](validator, r"(?!)", instance, schema)


VALIDATOR = extend(Draft202012Validator, {"pattern": _pattern})(SCHEMA)  # type: ignore[no-untyped-call]


def refused_by_the_model(value: object) -> list[Fault]:
    try:
        parse(value)
    except DefinitionInvalid as invalid:
        return invalid.faults
    return []


def assert_both_agree(value: object) -> None:
    by_the_model = [fault for fault in refused_by_the_model(value) if not _beyond(fault)]
    assert VALIDATOR.is_valid(value) is (by_the_model == []), (value, by_the_model)


def _beyond(fault: Fault) -> bool:
    if fault.rule == "unique":
        return fault.path.endswith(".id")
    return fault.rule in BEYOND_JSON_SCHEMA


def test_the_file_is_what_the_models_say() -> None:
    assert CONTRACT.read_text() == text()


def test_the_command_tells_a_file_that_is_out_of_date_and_writes_a_new_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written = tmp_path / "definition.v1.json"
    monkeypatch.setattr("engine.lifecycle.contract.CONTRACT", written)
    assert main(["--check"]) == 1, "there is none"
    assert main([]) == 0
    assert main(["--check"]) == 0
    written.write_text(text().replace('"maxItems": 20', '"maxItems": 21'))
    assert main(["--check"]) == 1
    assert "run python -m engine.lifecycle.contract" in capsys.readouterr().err


def test_the_contract_is_a_schema_of_draft_2020_12() -> None:
    assert SCHEMA["$schema"] == Draft202012Validator.META_SCHEMA["$id"]
    Draft202012Validator.check_schema(SCHEMA)


def test_every_object_and_every_member_is_described() -> None:
    objects = {"definition": SCHEMA, **SCHEMA["$defs"]}
    assert len(objects) == 1 + 1 + 1 + 3 + len(SELECTORS) + len(STEPS)
    for name, schema in objects.items():
        assert schema["description"], name
        for member, described in schema.get("properties", {}).items():
            assert described.get("description"), f"{name}.{member}"


def test_the_contract_tells_the_bounds_of_every_duration() -> None:
    objects = {"definition": SCHEMA, **SCHEMA["$defs"]}
    durations = [
        (f"{name}.{member}", schema["description"])
        for name, object_ in objects.items()
        for member, schema in object_.get("properties", {}).items()
        if schema.get("$ref") == "#/$defs/duration"
    ]
    assert len(durations) == 13
    for name, description in durations:
        assert re.search(r"From \d+[smh] to \d+h", description), name


def test_the_contract_names_no_other_contract() -> None:
    for reference in re.findall(r'"\$ref": "(.*?)"', text()):
        assert reference.startswith("#/$defs/")
        assert reference.removeprefix("#/$defs/") in SCHEMA["$defs"]


@pytest.mark.parametrize("value", of_every_kind())
def test_both_take_definitions_of_every_kind(value: Json) -> None:
    assert not refused_by_the_model(value)
    VALIDATOR.validate(value)


def test_the_example_in_the_contract_is_the_example_file() -> None:
    assert SCHEMA["examples"] == [onboarding()]


REFUSED_BY_BOTH: list[Any] = [
    None, [], 1, "x", {},
    definition(script="1"), definition(expression="1"), definition(triggers=[]), definition() | {"steps": []},
    definition(*[step("end", id=f"s{i}") for i in range(21)]), definition(triggers=[{"type": "manual"}] * 6),
    definition(step("end", id="a\n")), definition(step("end", retry={})), definition(step("end", role_id=id_of("rol"))),
    definition(step("approval", approvers=[id_of("usr")] * 2)), definition(step("approval", approvers=[])),
    definition(step("assign_role", role_id=id_of("rol") + "\n")), definition(step("assign_role", scope="realm")),
    definition(step("wait", **{"for": "1h\n"})), definition(step("wait", **{"for": "1d"})), definition(step("wait", for_="1h")),
    definition(step("call_webhook", timeout_ms=99)), definition(step("call_webhook", timeout_ms=30001)),
    definition(step("call_webhook", timeout_ms=True)), definition(retry=None), definition(retry={"max_attempts": 11}),
    definition(triggers=[schedule("guests", joined_before="1h")]), definition() | {"schema_version": True},
]  # fmt: skip


@pytest.mark.parametrize("value", REFUSED_BY_BOTH)
def test_both_refuse(value: Any) -> None:
    assert [fault for fault in refused_by_the_model(value) if not _beyond(fault)]
    assert not VALIDATOR.is_valid(value)


BEYOND: list[tuple[str, Any]] = [
    ("duration_range", definition(step("wait", **{"for": "59s"}))),
    ("duration_range", definition(retry={"backoff": "2h"})),
    ("unique", definition(step("end"), step("end"))),
    ("type", definition(retry={"max_attempts": 3.0})),
    ("type", definition() | {"schema_version": 1.0}),
]


@pytest.mark.parametrize(("rule", "value"), BEYOND)
def test_the_model_alone_refuses_what_json_schema_has_no_words_for(rule: str, value: Any) -> None:
    assert {fault.rule for fault in refused_by_the_model(value)} == {rule}
    VALIDATOR.validate(value)


PARTS: list[Any] = [each for sound in of_every_kind() for key in ("steps", "triggers") for each in sound[key]]
NAMES = sorted({name for part in [*STEPS, *SELECTORS, *PARTS, definition(retry={})] for name in part})
WORDS = ["realm", "organization", "welcome", "approvers", "user.created", "manual", "wait", "end", "guests", "a", "a\n", "",
         "1h", "1h\n", "30s", "1m", "0s", "1d", "72h1s",
         *[id_of(p) for p in ("org", "usr", "rol", "grp", "whk", "spn")]]  # fmt: skip
VALUES = (
    st.sampled_from(WORDS)
    | st.sampled_from([None, True, False, -1, 0, 1, 2, 10, 11, 99, 100, 30000, 30001, 1.5])
    | st.lists(st.sampled_from([*WORDS, 1, None]), max_size=12)
    | st.dictionaries(st.sampled_from([*NAMES, "script", "x y"]), st.sampled_from([*WORDS, 1, 3]), max_size=3)
    | st.sampled_from([*STEPS, *SELECTORS, *PARTS])
)


@st.composite
def changed(draw: st.DrawFn) -> Any:
    """A sound definition with up to three members or items dropped, changed, added or taken from elsewhere."""
    value = deepcopy(draw(st.sampled_from(of_every_kind())))
    for _ in range(draw(st.integers(1, 3))):
        containers = list(_containers(value))
        container = draw(st.sampled_from(containers))
        present = list(container) if isinstance(container, dict) else list(range(len(container)))
        change = draw(st.sampled_from(["drop", "change", "add"]))
        if change == "add" and isinstance(container, dict):
            container[draw(st.sampled_from([*NAMES, "script"]))] = deepcopy(draw(VALUES))
        elif change == "add":
            container.extend(deepcopy(draw(st.lists(st.sampled_from(container or ["x"]) | VALUES, max_size=6))))
        elif present and change == "drop":
            del container[draw(st.sampled_from(present))]
        elif present:
            container[draw(st.sampled_from(present))] = deepcopy(draw(VALUES))
    return value


def _containers(value: Any) -> list[Any]:
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
    own = [value] if isinstance(value, dict | list) else []
    return own + [found for item in inside for found in _containers(item)]


@settings(max_examples=200, deadline=None)
@given(changed())
def test_both_agree_about_a_definition_that_was_changed_anywhere(value: Any) -> None:
    assert_both_agree(value)


FITTING: dict[str, list[Any]] = {
    name: [part[name] for part in PARTS if name in part] + [s[name] for s in SELECTORS if name in s] for name in NAMES
}
"""By member, the values it has somewhere: one of them in place of another often makes a sound definition."""


@st.composite
def changed_part(draw: st.DrawFn) -> Json:
    """A sound definition with one step or trigger, of which one member was changed, added or dropped."""
    part: Json = deepcopy(draw(st.sampled_from(PARTS)))
    inner: Json = part["select"] if "select" in part and draw(st.booleans()) else part
    name = draw(st.sampled_from(list(inner)) | st.sampled_from([*NAMES, "script"]))
    inner[name] = deepcopy(draw(st.sampled_from(FITTING.get(name) or ["x"]) | VALUES))
    if draw(st.integers(0, 4)) == 0:
        del inner[name]
    return definition(part) if "id" in part else definition(triggers=[part])


@settings(max_examples=300, deadline=None)
@given(changed_part())
def test_both_agree_about_a_definition_with_one_member_changed(value: Json) -> None:
    assert_both_agree(value)


def test_the_contract_is_json_as_everyone_reads_it() -> None:
    assert json.loads(CONTRACT.read_bytes().decode("utf-8")) == SCHEMA
