"""One page of a list, the newest first: by key, never by offset, so that rows inserted meanwhile shift nothing.

A filter whose value decides between two plans (`word`, `moment`) stands in the text of the statement and not among its
parameters: a statement that is prepared may be planned once for all values, and then the planner guesses.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import BindParameter, ColumnElement, Connection, Row, Select, bindparam

from db.tables.columns import MOMENT, WORD


def word(value: str) -> BindParameter[Any]:
    """A word of a closed list, which partial indexes may be about."""
    return bindparam(None, value, type_=WORD, literal_execute=True, unique=True)


def moment(value: datetime) -> BindParameter[Any]:
    """A moment, near or far."""
    return bindparam(None, value, type_=MOMENT, literal_execute=True, unique=True)


def newest(
    connection: Connection, statement: Select[Any], key: ColumnElement[Any], after: str | int | None, limit: int
) -> Sequence[Row[Any]]:
    """At most `limit` rows behind `after` (None: from the top), by descending `key`."""
    if after is not None:
        statement = statement.where(key < after)
    return connection.execute(statement.order_by(key.desc()).limit(limit)).all()
