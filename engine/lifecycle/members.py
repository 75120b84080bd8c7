"""What every part of a definition has in common: strict, closed and immutable.

Strict as the source asks: an unknown member, or one of another step's type, is refused; so is a number written as text,
and `1.0` for `1`. A member is there, or it is not: `None` stands for one left out, and `parse` refuses `null`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
)
from pydantic_core import PydanticCustomError, core_schema


class Members(BaseModel):
    """The members of an object of a definition."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


def _all_different(values: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(values)) != len(values):
        raise PydanticCustomError("not_unique", "must not name the same thing twice")
    return values


UNIQUE = (AfterValidator(_all_different), Field(strict=False, json_schema_extra={"uniqueItems": True}))
"""Of a tuple of words: `Annotated[tuple[UserId, ...], *UNIQUE]`. Not strict, for JSON knows only lists."""


@dataclass(frozen=True, slots=True)
class Items:
    """How many items an array has, both bounds included: `Annotated[tuple[UserId, ...], Items(1, 10)]`.

    Counted before the items are looked at. Pydantic's own bounds count those that were sound, and so call an array too
    short whose items are wrong, and one not too long that has both too many and wrong ones.
    """

    least: int
    most: int

    def __call__(self, value: object) -> object:
        if not isinstance(value, list | tuple):
            raise PydanticCustomError("array", "must be an array")
        if not self.least <= len(value) <= self.most:
            bounds = {"least": self.least, "most": self.most}
            raise PydanticCustomError("items", "must have from {least} to {most} items", bounds)
        return tuple(value)

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.no_info_before_validator_function(self, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {**handler(schema), "minItems": self.least, "maxItems": self.most}


def _whole(value: object) -> object:
    if type(value) is not int:
        raise PydanticCustomError("whole_number", "must be a whole number")
    return value


WHOLE = BeforeValidator(_whole)
"""Of a literal number: pydantic's `Literal[1]` lets `true` and `1.0` pass."""

StepId = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]{0,39}$")]
"""The name of a step, part of its idempotency key (source: "Limits and validation")."""
