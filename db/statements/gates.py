"""The gate of a workflow: who wants to change it waits in turn with those who only rely on it.

A row that is locked FOR SHARE lets in whoever else shares it, past those who wait to change it: workers that are always at a
workflow would keep an administrator waiting for ever. Advisory locks are served in turn, so everybody passes here first. The
lock is on a 64-bit hash: two workflows of the same hash wait for each other, and that is all.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import ColumnElement, Connection, func, select

from db.statements.bulk import keys as keys_of
from db.statements.bulk import unnested
from db.tables.columns import ID

_keys = unnested({"realm_id": ID, "id": ID}, "wanted")
_hash: ColumnElement[int] = func.hashtextextended(_keys.c.realm_id + " " + _keys.c.id, 1)
_in_order = select(_hash.label("gate")).distinct().order_by("gate").offset(0).subquery("in_order")
_share = select(func.count(func.pg_advisory_xact_lock_shared(_in_order.c.gate)))
_take = select(func.count(func.pg_advisory_xact_lock(_in_order.c.gate)))


def share(connection: Connection, workflows: Sequence[tuple[str, str]]) -> None:
    """Pass the gates of these workflows (realm and id) together with others, until the transaction ends."""
    connection.execute(_share, keys_of(workflows))


def take(connection: Connection, realm_id: str, workflow_id: str) -> None:
    """Pass the gate of a workflow alone, until the transaction ends."""
    connection.execute(_take, keys_of([(realm_id, workflow_id)]))
