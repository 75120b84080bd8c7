"""The ledger: collects what the decisions of a batch want written, and writes each table once.

A write is a `Row` for a statement over unnested columns. The ledger keeps the order of the statements fixed (deletions before
insertions, what is referred to before what refers), so that every transaction locks tables and rows in the same order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection

from db.statements.bulk import Bulk


class ShortWrite(RuntimeError):
    """A statement hit fewer rows than it was given: something else changed them. The transaction must be rolled back."""

    def __init__(self, name: str, wanted: int, hit: int) -> None:
        super().__init__(f"{name}: {wanted} rows wanted, {hit} hit")
        self.name = name


@dataclass(frozen=True, slots=True)
class Write:
    """A statement of the ledger, with its place in the order. `exact`: every row must be hit. Called, it makes a row."""

    rank: int
    bulk: Bulk
    exact: bool = True

    def __call__(self, **values: Any) -> Row:
        """A row for this statement; `values` has one entry a column."""
        return Row(self, values)


@dataclass(frozen=True, slots=True)
class Row:
    """One row for one statement."""

    write: Write
    values: Mapping[str, Any]


@dataclass(slots=True)
class Ledger:
    """All rows of one transaction, by statement."""

    rows: dict[str, list[Mapping[str, Any]]] = field(default_factory=dict)
    _writes: dict[str, Write] = field(default_factory=dict)

    def add(self, rows: Iterable[Row]) -> None:
        """Take the rows of one decision."""
        for row in rows:
            name = row.write.bulk.name
            known = self._writes.setdefault(name, row.write)
            if known is not row.write:
                raise ValueError(f"two statements of the ledger are named {name}")
            self.rows.setdefault(name, []).append(row.values)

    def write(self, connection: Connection, *, upto: int | None = None, above: int = -1) -> None:
        """Write what has a rank above `above` and up to `upto`. Raises ShortWrite when a count does not match."""
        for name, write in sorted(self._writes.items(), key=lambda item: item[1].rank):
            if write.rank <= above or (upto is not None and write.rank > upto):
                continue
            wanted: Sequence[Mapping[str, Any]] = self.rows[name]
            hit = write.bulk.run(connection, wanted)
            if write.exact and hit != len(wanted):
                raise ShortWrite(name, len(wanted), hit)
