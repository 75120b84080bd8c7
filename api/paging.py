"""Pages: `{"items": [...], "next_cursor": ...}`, the newest first, by key and never by offset.

A cursor is where the page before ended, with a digest over that, the realm, the list and its filters: one that was cut short,
changed, or belongs to another realm or list is a 422. It is no secret and gives nobody anything: whatever it says, the rows
are those of the caller's realm.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import Row

from api.shapes import Answer, Text, Whole
from engine.core.errors import Refused

DIGEST = 9
"""Bytes."""

_POSITION = re.compile(r"[0-9a-z_]{1,64}")
_NUMBER = re.compile(r"[0-9]{1,19}")
INT4, INT8 = 2**31 - 1, 2**63 - 1
"""The largest number of a column: what is compared with it must fit in too."""

A = TypeVar("A", bound=Answer)


class PageQuery(BaseModel):
    """The query of a list. Its subclasses add filters."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    limit: Annotated[Whole, Field(ge=1, le=100, description="How many items at most.")] = 50
    cursor: Annotated[Text, Field(max_length=200, description="`next_cursor` of the page before.")] | None = None


class Page(BaseModel, Generic[A]):
    """One page. `next_cursor` is null on the last one."""

    model_config = ConfigDict(json_schema_extra={"description": "One page. `next_cursor` is null on the last one."})

    items: list[A]
    next_cursor: str | None


def page_of(
    kind: type[A],
    query: PageQuery,
    place: Sequence[str],
    read: Callable[[Any, int], Sequence[Row[Any]]],
    key: str = "id",
    *,
    most: int | None = None,
) -> Page[A]:
    """A page of what `read(after, limit)` gives. `place` names realm and list; `key` is the column that the rows are ordered
    by: an id or, if `most` is given, a number that is never larger. Raises Refused(`validation_failed`) for a cursor that is not
    of this list."""
    about = json.dumps([*place, query.model_dump(mode="json", exclude={"limit", "cursor"})])
    after = None if query.cursor is None else _position(query.cursor, about, most)
    rows = read(after, query.limit + 1)
    items = [kind.model_validate(row) for row in rows[: query.limit]]
    if len(rows) <= query.limit:
        return Page(items=items, next_cursor=None)
    return Page(items=items, next_cursor=_cursor(str(getattr(rows[query.limit - 1], key)), about))


def _cursor(position: str, about: str) -> str:
    return base64.urlsafe_b64encode(_digest(position, about) + position.encode()).decode().rstrip("=")


def _position(cursor: str, about: str, most: int | None) -> str | int:
    try:
        raw = base64.urlsafe_b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4))
        position = raw[DIGEST:].decode("ascii")
    except ValueError:
        raise _refused() from None
    form = _POSITION if most is None else _NUMBER
    # Compared as text too: base64 reads several spellings as the same bytes.
    if form.fullmatch(position) is None or _cursor(position, about) != cursor:
        raise _refused()
    if most is None:
        return position
    if int(position) > most:
        raise _refused()
    return int(position)


def _digest(position: str, about: str) -> bytes:
    return hashlib.blake2b(f"{position}\n{about}".encode(), digest_size=DIGEST, person=b"tenure cursor").digest()


def _refused() -> Refused:
    return Refused("validation_failed", "the cursor is not one of this list", "cursor")
