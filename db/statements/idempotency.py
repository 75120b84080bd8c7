"""Idempotency keys of callers: take one for a request, look up what it made, remember it."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Connection, bindparam, func, select

from db.rows import AnyRow
from db.tables import IdempotencyKey, table
from db.tables.columns import ID, WORD

keys = table(IdempotencyKey)

_take = select(func.pg_try_advisory_xact_lock(func.hashtextextended(bindparam("name", type_=WORD), 0)))


def take(connection: Connection, realm_id: str, actor_id: str, operation: str, key: str) -> bool:
    """Whether the key is ours until the transaction ends; nobody waits for it. The lock is on a 64-bit hash of it: two keys of
    the same hash at the same moment are told apart by nothing, and one of them is told to come again."""
    name = f"{realm_id} {actor_id} {operation} {key}"
    return bool(connection.execute(_take, {"name": name}).scalar_one())


_known = select(keys.c.request_hash, keys.c.result_id).where(
    keys.c.realm_id == bindparam("of_realm", type_=ID),
    keys.c.actor_id == bindparam("of_actor", type_=ID),
    keys.c.operation == bindparam("of_operation", type_=WORD),
    keys.c.key == bindparam("of_key", type_=ID),
)


def known(connection: Connection, realm_id: str, actor_id: str, operation: str, key: str) -> AnyRow | None:
    """What was asked under that key, and what it made."""
    given = {"of_realm": realm_id, "of_actor": actor_id, "of_operation": operation, "of_key": key}
    return connection.execute(_known, given).one_or_none()


def remember(connection: Connection, values: Mapping[str, str]) -> None:
    """A key that has made something."""
    connection.execute(keys.insert().values(values))
