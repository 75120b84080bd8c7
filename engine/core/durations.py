"""Durations as people write them: `30s`, `72h`, `1h30m` (lifecycle.md, "Steps").

The form is Go's, less its odd corners: hours, minutes, seconds and milliseconds, each at most once and in that order,
with up to three decimals (whole milliseconds by construction). No sign, no bare zero, no other unit, ASCII digits only.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Self

import durationpy
from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import PydanticCustomError, core_schema

_NUMBER = r"[0-9]{1,9}(?:\.[0-9]{1,3})?"
PATTERN = rf"^(?=[0-9])(?:{_NUMBER}h)?(?:{_NUMBER}m)?(?:{_NUMBER}s)?(?:[0-9]{{1,9}}ms)?$"
"""For JSON Schema. Nine digits are enough for any bound, and no text is long enough to cost anything."""

_SHAPE = re.compile(PATTERN.removeprefix("^").removesuffix("$"), re.ASCII)


def parse(text: str) -> timedelta:
    """The length that `text` names. Raises ValueError for anything that is not exactly a duration."""
    if _SHAPE.fullmatch(text) is None:
        raise ValueError("is not a duration such as 30s, 72h or 1h30m")
    length = durationpy.from_str(text)
    assert isinstance(length, timedelta)
    return length


class Duration(str):
    """The author's text, and the length it names. Equal to its text, so a definition keeps what was written."""

    __slots__ = ("timedelta",)

    timedelta: timedelta

    def __new__(cls, text: str) -> Self:
        made = super().__new__(cls, text)
        made.timedelta = parse(text)
        return made

    @property
    def seconds(self) -> float:
        """The length in seconds."""
        return self.timedelta.total_seconds()

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.no_info_after_validator_function(_read, core_schema.str_schema(strict=True))

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {"type": "string", "pattern": PATTERN}


def _read(text: str) -> Duration:
    try:
        return Duration(text)
    except ValueError as refusal:
        raise PydanticCustomError("duration", "{reason}", {"reason": str(refusal)}) from None


@dataclass(frozen=True, slots=True)
class Between:
    """The bounds of a duration, both included, and the unit that it must be a multiple of."""

    least: Duration
    most: Duration
    unit: Duration

    def __call__(self, value: Duration) -> Duration:
        if not self.least.timedelta <= value.timedelta <= self.most.timedelta:
            raise PydanticCustomError(
                "duration_bounds",
                "must be between {least} and {most}",
                {"least": str(self.least), "most": str(self.most)},
            )
        if value.timedelta % self.unit.timedelta:
            raise PydanticCustomError("duration_unit", "must be a multiple of {unit}", {"unit": str(self.unit)})
        return value

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.no_info_after_validator_function(self, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """JSON Schema cannot compare durations, so the bounds are at least told."""
        whole = "" if self.unit.timedelta.microseconds else f", a multiple of {self.unit}"
        return {**handler(schema), "description": f"From {self.least} to {self.most}{whole}."}


def between(least: str, most: str, unit: str = "1ms") -> Between:
    """Bounds for a member: `expires_in: Annotated[Duration, between("1m", "720h")]`."""
    return Between(Duration(least), Duration(most), Duration(unit))
