"""One page of a list, the newest first: by key, never by offset, so that rows inserted meanwhile shift nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Column, Connection, Row, Select


def newest(
    connection: Connection, statement: Select[Any], key: Column[Any], after: str | int | None, limit: int
) -> Sequence[Row[Any]]:
    """At most `limit` rows behind `after` (None: from the top), by descending `key`."""
    if after is not None:
        statement = statement.where(key < after)
    return connection.execute(statement.order_by(key.desc()).limit(limit)).all()
