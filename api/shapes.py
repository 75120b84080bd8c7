"""The kinds of text, numbers and moments that come from outside, and the models that take them: strict, nothing extra."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    PlainSerializer,
    WithJsonSchema,
)
from pydantic_core import PydanticCustomError, core_schema

_MOMENT = re.compile(
    r"([0-9]{4})-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?([Zz]|[+-][0-9]{2}:[0-9]{2})"
)
_WHOLE = re.compile(r"[1-9][0-9]{0,8}")


class Body(BaseModel):
    """What a caller sends: nothing is converted, nothing extra is let in."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Answer(BaseModel):
    """What a caller is told, made from a row."""

    model_config = ConfigDict(from_attributes=True, frozen=True)


@dataclass(frozen=True, slots=True)
class Documented:
    """Says in the document what a validator of ours asks for, and JSON Schema has words for."""

    keywords: dict[str, Any]

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {**handler(schema), **self.keywords}


def _without_default(schema: dict[str, Any]) -> None:
    schema.pop("default", None)


def unset() -> Any:
    """The default of a member that may be left out, but not be null: told apart by `exclude_unset`, and never used."""
    return Field(default=None, json_schema_extra=_without_default)


def _moment(value: object) -> datetime:
    """RFC 3339, years 1970 to 9998, to the microsecond: what goes into the database must come out of it again."""
    match = _MOMENT.fullmatch(value) if isinstance(value, str) else None
    if match is not None and "1970" <= match[1] <= "9998":
        try:
            return datetime.fromisoformat(str(value).upper()).astimezone(UTC)
        except (ValueError, OverflowError):
            pass
    raise PydanticCustomError("tenure_moment", "must be a moment such as 2026-10-11T09:00:00Z")


_YEAR = "(19[7-9][0-9]|[2-8][0-9]{3}|9[0-8][0-9]{2}|99[0-8][0-9]|999[0-8])"

Moment = Annotated[
    datetime,
    BeforeValidator(_moment),
    WithJsonSchema(
        {
            "type": "string",
            "format": "date-time",
            "pattern": f"^{_MOMENT.pattern.replace('([0-9]{4})', _YEAR)}$",
            "examples": ["2099-01-01T00:00:00Z"],
        }
    ),
]
"""A moment in the request, in aware UTC."""


def _utc(value: datetime) -> str:
    return value.astimezone(UTC).isoformat().replace("+00:00", "Z")


At = Annotated[
    datetime,
    PlainSerializer(_utc, return_type=str),
    WithJsonSchema({"type": "string", "format": "date-time"}, mode="serialization"),
]
"""A moment in an answer, in UTC."""


def _whole(value: object) -> int:
    """A positive number as it stands in a path or query: ASCII digits only (`1_000`, `+1` and `1.0` are not)."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value  # a default of ours
    if isinstance(value, str) and _WHOLE.fullmatch(value):
        return int(value)
    raise PydanticCustomError("tenure_number", "must be a whole number of at most nine digits")


Whole = Annotated[int, BeforeValidator(_whole), Documented({"type": "integer", "minimum": 1, "maximum": 999_999_999})]

PLAIN = r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029]+$"
"""Text of one line without control characters."""

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def _storable(value: str) -> str:
    """Query texts and headers do not pass the reader of bodies."""
    if _UNSTORABLE.search(value):
        raise PydanticCustomError("tenure_text", "must not hold NUL or half of a surrogate pair")
    return value


def _name(value: str) -> str:
    if value != value.strip():
        raise PydanticCustomError("tenure_text", "must not begin or end with a space")
    return value


_INK = r"[^\x00-\x20\x7f-\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]"
"""What is neither a control character nor a space of any kind."""

Name = Annotated[
    str,
    Field(min_length=1, max_length=100, pattern=PLAIN),
    AfterValidator(_name),
    Documented({"pattern": rf"^{_INK}({PLAIN[1:-2]}*{_INK})?$"}),
]
"""What a thing is called: one line."""

Email = Annotated[
    str,
    Field(
        max_length=254,
        pattern=r"^[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
        r"(?:\.[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?)*$",
        examples=["ada@example.org"],
    ),
]
"""An address, as browsers check it."""

IdempotencyKey = Annotated[str, Field(pattern=r"^[\x21-\x7e]{1,128}$", examples=["8f2c1d0e-onboarding-ada"])]

Text = Annotated[str, AfterValidator(_storable)]

Document = dict[str, Any]
"""JSON of ours, as it was stored."""
