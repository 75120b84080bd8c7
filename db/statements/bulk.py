"""Whole columns in, one statement out: `INSERT ... SELECT FROM unnest` and its relatives, built once at import.

A batch of fifty runs costs one round trip a table instead of fifty. Every statement here takes one array a column; a nested
array (`text[]` in a row) travels as JSON text, since unnest would flatten it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Column, Connection, Table, Text, bindparam, cast, column, func, select, text
from sqlalchemy.dialects.postgresql import ARRAY, JSONB
from sqlalchemy.sql import FromClause
from sqlalchemy.sql.elements import ColumnElement
from sqlalchemy.sql.expression import Executable
from sqlalchemy.types import TypeEngine

from db.json import dumps

_COUNTED = {"preserve_rowcount": True}
"""Without it SQLAlchemy does not keep the count of an INSERT."""


def _travels_as(kind: TypeEngine[Any]) -> TypeEngine[Any]:
    """Documents and arrays travel as text and are cast inside the statement."""
    return Text() if isinstance(kind, JSONB | ARRAY) else kind


def _arrived(source: ColumnElement[Any], kind: TypeEngine[Any]) -> ColumnElement[Any]:
    if isinstance(kind, JSONB):
        return cast(source, JSONB)
    if isinstance(kind, ARRAY):
        return cast(source, kind)
    return source


def unnested(columns: Mapping[str, TypeEngine[Any]], name: str = "given") -> FromClause:
    """`unnest(:in_a, :in_b, ...) AS given(a, b, ...)`; `arrays` names the parameters."""
    given = [cast(bindparam(f"in_{key}", type_=Text), ARRAY(_travels_as(kind))) for key, kind in columns.items()]
    return (
        func.unnest(*given)
        .table_valued(*[column(key, _travels_as(kind)) for key, kind in columns.items()])
        .render_derived(name=name)
    )


def arrays(columns: Mapping[str, Sequence[Any]]) -> dict[str, str]:
    """The parameters of `unnested`, a list a column. Not named as the columns: SQLAlchemy keeps those names for itself."""
    return {f"in_{key}": array_literal(values) for key, values in columns.items()}


def array_literal(values: Sequence[Any]) -> str:
    """A one-dimensional PostgreSQL array in its text form, for texts, numbers, truth values, moments and bytes.

    psycopg's own writer of lists took a quarter of a batch's time: it looks at every element with regular expressions.
    """
    return "{" + ",".join([_element(value) for value in values]) + "}"


def _element(value: Any) -> str:
    match value:
        case None:
            return "NULL"
        case str():
            if "\\" in value or '"' in value:
                value = value.replace("\\", "\\\\").replace('"', '\\"')
            return f'"{value}"'
        case bool():
            return "t" if value else "f"
        case int() | float():
            return repr(value)
        case datetime():
            return f'"{value.isoformat()}"'
        case bytes():
            return f'"\\\\x{value.hex()}"'
        case _:
            raise TypeError(f"an array for the database cannot hold a {type(value).__name__}")


def keys(wanted: Collection[tuple[str, str]]) -> dict[str, Any]:
    """The parameters of `unnested` for keys of realm and id, in the order in which rows are locked."""
    ordered = sorted(wanted)
    return arrays({"realm_id": [key[0] for key in ordered], "id": [key[1] for key in ordered]})


@dataclass(frozen=True, slots=True)
class Bulk:
    """A statement over unnested columns. `run` returns how many rows it hit."""

    name: str
    statement: Executable
    columns: tuple[str, ...]
    documents: frozenset[str]
    arrays: frozenset[str]

    def run(self, connection: Connection, rows: Sequence[Mapping[str, Any]]) -> int:
        """Write all `rows` at once; each row has a value for every column."""
        parameters: dict[str, list[Any]] = {}
        for key in self.columns:
            values = [row[key] for row in rows]
            if key in self.documents:
                values = [None if value is None else dumps(value) for value in values]
            elif key in self.arrays:
                values = [None if value is None else array_literal(value) for value in values]
            parameters[key] = values
        return int(connection.execute(self.statement, arrays(parameters), execution_options=_COUNTED).rowcount)


def _bulk(name: str, statement: Executable, columns: Sequence[Column[Any]], extra: Sequence[str] = ()) -> Bulk:
    return Bulk(
        name=name,
        statement=statement,
        columns=(*[c.name for c in columns], *extra),
        documents=frozenset(c.name for c in columns if isinstance(c.type, JSONB)),
        arrays=frozenset(c.name for c in columns if isinstance(c.type, ARRAY)),
    )


def insert_into(table: Table, *names: str) -> Bulk:
    """`INSERT INTO table (names) SELECT ... FROM unnest(...)`. A row that is there already is an error."""
    columns = [table.c[name] for name in names]
    given = unnested({c.name: c.type for c in columns})
    rows = select(*[_arrived(given.c[c.name], c.type) for c in columns])
    return _bulk(f"insert {table.name}", table.insert().from_select(list(names), rows, include_defaults=False), columns)


def delete_from(table: Table, *names: str, guard: str | None = None) -> Bulk:
    """`DELETE FROM table USING unnest(...) WHERE names match [AND guard]`."""
    columns = [table.c[name] for name in names]
    given = unnested({c.name: c.type for c in columns})
    statement = table.delete().where(*[c == given.c[c.name] for c in columns])
    if guard is not None:
        statement = statement.where(text(guard))
    return _bulk(f"delete {table.name}", statement, columns)


def update_rows(
    table: Table, by: Sequence[str], sets: Sequence[str], guard: str | None = None, *, name: str | None = None
) -> Bulk:
    """`UPDATE table SET sets FROM unnest(...) WHERE by match [AND guard]`. `guard` is more of the condition.

    `name` tells two updates of one table apart in a ledger."""
    columns = [table.c[key] for key in (*by, *sets)]
    given = unnested({c.name: c.type for c in columns})
    statement = (
        table.update()
        .values({key: _arrived(given.c[key], table.c[key].type) for key in sets})
        .where(*[table.c[key] == given.c[key] for key in by])
    )
    if guard is not None:
        statement = statement.where(text(guard))
    return _bulk(name or f"update {table.name}", statement, columns)
