"""What was committed, in the order in which it was committed: the database itself keeps the diary.

A trigger at the end of each transaction takes a lock that it holds until the transaction is committed, and then writes: so
nothing else can commit between what is written and its commit, and of two places the smaller one was committed first. The
clocks of tests and the order in which rows were written do not come into it.

    with kept(database) as diary:
        ...
        diary.entries()
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from db.session import Database
from tests.driver import owner, rows

TABLES = (
    "users",
    "memberships",
    "role_assignments",
    "group_members",
    "group_roles",
    "messages",
    "workflow_step_attempts",
)
"""Everything that authority rests on or that a step changes."""

_MAKE = (
    """CREATE TABLE diary (
         place bigint GENERATED ALWAYS AS IDENTITY, at timestamptz DEFAULT clock_timestamp(),
         xid xid8, of text, did text, before jsonb, after jsonb)""",
    """CREATE FUNCTION write_diary() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN
         PERFORM pg_advisory_xact_lock(1616);
         INSERT INTO diary (xid, of, did, before, after)
         VALUES (pg_current_xact_id(), TG_TABLE_NAME, TG_OP, to_jsonb(OLD), to_jsonb(NEW));
         RETURN NULL;
       END $$""",
    *(
        f"CREATE CONSTRAINT TRIGGER diary AFTER INSERT OR UPDATE OR DELETE ON {name}"
        " DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION write_diary()"
        for name in TABLES
    ),
    "GRANT SELECT ON diary TO PUBLIC",
)


@dataclass(frozen=True)
class Entry:
    """A row that a committed transaction (`xid`) changed. `row` is the row as it was left, or as it was when it went; `at` the
    database's clock at the commit."""

    place: int
    at: datetime
    xid: str
    of: str
    did: str
    row: dict[str, Any]
    before: dict[str, Any]

    @property
    def user_id(self) -> str | None:
        """The user it is about, if it is about one."""
        return str(self.row["id"]) if self.of == "users" else self.row.get("user_id")


@dataclass(frozen=True)
class Diary:
    """The diary of one database."""

    database: Database

    def forget(self) -> None:
        """Begin anew."""
        owner(self.database, "TRUNCATE diary")

    def entries(self) -> list[Entry]:
        """All of it, in the order of the commits."""
        found = rows(self.database, "SELECT place, at, xid::text, of, did, before, after FROM diary ORDER BY place")
        return [
            Entry(each.place, each.at, each.xid, each.of, each.did, each.after or each.before, each.before or {})
            for each in found
        ]


@contextmanager
def kept(database: Database) -> Iterator[Diary]:
    """Keep a diary until the end of the block."""
    for statement in _MAKE:
        owner(database, statement)
    try:
        yield Diary(database)
    finally:
        owner(database, "DROP FUNCTION write_diary CASCADE")
        owner(database, "DROP TABLE diary")
