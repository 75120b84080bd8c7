"""What is wrong with a definition, in our words: the path an author knows, the rule, a sentence that repeats no input."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from engine.core.canonical import path_to
from engine.core.errors import Fault
from engine.core.ids import SUFFIX

Context = Mapping[str, Any]


def faults_of(invalid: ValidationError, told: Container[str]) -> list[Fault]:
    """The faults of a definition in the order of its members, but for those of the paths already `told`."""
    details = invalid.errors(include_url=False, include_input=False)
    faults = (_fault(detail) for detail in details)
    return [fault for fault in faults if fault.path not in told]


def nulls(value: object) -> list[Fault]:
    """Every `null`: none belongs anywhere in a definition. Pydantic's optional members would let them in."""
    return [
        Fault(path_to("definition", way), "required", "must be left out instead of null")
        for way in _ways_to_null(value)
    ]


def _ways_to_null(value: object) -> Iterator[tuple[int | str, ...]]:
    if value is None:
        yield ()
    elif isinstance(value, dict):
        for name, member in value.items():
            if member is None or isinstance(member, dict | list):
                yield from ((name, *way) for way in _ways_to_null(member))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            if item is None or isinstance(item, dict | list):
                yield from ((index, *way) for way in _ways_to_null(item))


def _fault(detail: ErrorDetails) -> Fault:
    path = _path(detail["loc"])
    context = detail.get("ctx", {})
    if detail["type"] in ("union_tag_invalid", "union_tag_not_found"):
        path = f"{path}.type"
    rule, sentence = _RULES.get(detail["type"], _OTHER)
    return Fault(path, rule, sentence(context) if sentence else detail["msg"])


def _path(loc: tuple[int | str, ...]) -> str:
    return path_to("definition", _without_tags(loc))


def _without_tags(loc: tuple[int | str, ...]) -> tuple[int | str, ...]:
    """Pydantic names the branch of a union it took: behind the place of a step or trigger, and behind a selector's."""
    match loc:
        case ("triggers", int(), "schedule", "select", _, *_):
            return (*loc[:2], "select", *loc[5:])
        case ("triggers" | "steps", int(), _, *_):
            return (*loc[:2], *loc[3:])
        case _:
            return loc


def _pattern(context: Context) -> str:
    pattern = str(context["pattern"])
    if pattern.endswith(f"_{SUFFIX}$"):
        return f"must be an id that starts with {pattern[1:5]}"
    return f"must match {pattern}"


def _items(number: int) -> str:
    return "1 item" if number == 1 else f"{number} items"


def _fixed(sentence: str) -> Callable[[Context], str]:
    return lambda _: sentence


_Rule = tuple[str, Callable[[Context], str] | None]

_RULES: Mapping[str, _Rule] = {
    "extra_forbidden": ("unknown_member", _fixed("is not a member that belongs here")),
    "missing": ("required", _fixed("is required")),
    "literal_error": ("one_of", lambda context: f"must be {context['expected']}"),
    "union_tag_invalid": ("one_of", lambda context: f"must be one of {context['expected_tags']}"),
    "union_tag_not_found": ("required", _fixed("is required")),
    "string_pattern_mismatch": ("pattern", _pattern),
    "whole_number": ("type", None),
    "string_type": ("type", _fixed("must be a string")),
    "int_type": ("type", _fixed("must be a whole number")),
    "bool_type": ("type", _fixed("must be true or false")),
    "tuple_type": ("type", _fixed("must be an array")),
    "model_type": ("type", _fixed("must be an object")),
    "model_attributes_type": ("type", _fixed("must be an object")),
    "greater_than_equal": ("range", lambda context: f"must be at least {context['ge']}"),
    "less_than_equal": ("range", lambda context: f"must be at most {context['le']}"),
    "too_short": ("length", lambda context: f"must have at least {_items(context['min_length'])}"),
    "too_long": ("length", lambda context: f"must have at most {_items(context['max_length'])}"),
    "array": ("type", None),
    "items": ("length", None),
    "not_unique": ("unique", None),
    "duration": ("duration", None),
    "duration_bounds": ("duration_range", None),
    "duration_unit": ("duration_range", None),
    "scope_realm": ("scope", None),
}
"""Type of pydantic's error -> our rule and sentence. Without a sentence the message is already one of ours."""

_OTHER: _Rule = ("invalid", _fixed("is not valid"))
