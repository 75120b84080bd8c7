"""Arrays in PostgreSQL's text form mean exactly the values they were made of."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import ARRAY, BigInteger, Boolean, DateTime, LargeBinary, Text, bindparam, cast, select

from db.session import Database
from db.statements.bulk import array_literal

TEXTS = st.text(st.characters(blacklist_characters="\x00", blacklist_categories=("Cs",)), max_size=30)


def read_back(database: Database, values: list[Any], kind: Any) -> list[Any]:
    with database.begin() as connection:
        statement = select(cast(bindparam("values", type_=Text), ARRAY(kind)))
        return list(connection.execute(statement, {"values": array_literal(values)}).scalar_one())


@given(
    values=st.lists(st.none() | TEXTS | st.sampled_from(['"', "\\", '\\"', "NULL", "", "{", "},{", " a "]), min_size=1)
)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_text_comes_back_as_it_was(module_database: Database, values: list[str | None]) -> None:
    assert read_back(module_database, values, Text) == values


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, -5, None, 2**62], BigInteger),
        ([True, None, False], Boolean),
        ([datetime(2026, 11, 30, 12, 0, 0, 123456, tzinfo=UTC), None], DateTime(timezone=True)),
        ([datetime.now(UTC) + timedelta(days=365000)], DateTime(timezone=True)),
        ([b"\x00\xff\\x", b"", None], LargeBinary),
    ],
)
def test_other_values_come_back_as_they_were(module_database: Database, values: list[Any], kind: Any) -> None:
    assert read_back(module_database, values, kind) == values


def test_a_value_of_another_kind_is_refused() -> None:
    with pytest.raises(TypeError, match="dict"):
        array_literal([{}])
