"""The column types that every table uses.

Ids and names of things compare by bytes (collation C): they are never sorted for people, and byte order is the cheapest.
SQLModel's own string type reports no Python type on SQLAlchemy 2.1, hence explicit types everywhere.
"""

from __future__ import annotations

from sqlalchemy import DateTime, Text
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

ID = Text(collation="C")
WORD = Text(collation="C")
PROSE = Text()
MOMENT = DateTime(timezone=True)
DOCUMENT = JSONB(none_as_null=True)
WORDS = ARRAY(Text(collation="C"))

BRIN = {"pages_per_range": 32, "autosummarize": "on"}
"""An index of ranges of pages, for moments that grow with the table: a write costs next to nothing. Pages that came since the
last vacuum are read whole until they are summarized."""

NOW = "clock_timestamp()"
"""Server default of moments: the database's clock is the only clock (lifecycle.md, decision 2)."""


def one_of(column: str, *values: str) -> str:
    """The text of a check that keeps `column` to a closed list."""
    return f"{column} IN ({', '.join(repr(value) for value in values)})"
