"""A request that carries an idempotency key is done once, however often it comes.

The key is written in the transaction of what it stands for: either both are there or neither. It belongs to the caller who chose
it and to one operation. The same request again gives what it made before; another request under the same key is refused,
and so is one that comes while the first is still being done (draft-ietf-httpapi-idempotency-key-header).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import Connection

from db.statements import idempotency as statements
from engine.core.canonical import canonical_bytes, sha256_hex
from engine.core.errors import Refused
from engine.core.trail import Cause

MEMBER = "Idempotency-Key"
"""What refusals name."""


def once(
    connection: Connection, cause: Cause, operation: str, key: str, request: Any, make: Callable[[], str]
) -> tuple[str, bool]:
    """The id of what `make` made for this request, now or before, and whether it was now. `request` is JSON.

    Raises Refused: `validation_failed` when the key was used with another request, `conflict` while it is in use; and what
    `make` raises, and then the key is free again.
    """
    assert cause.actor_id is not None
    place = (cause.realm_id, cause.actor_id, operation, key)
    if not statements.take(connection, *place):
        raise Refused("conflict", "a request with this key is being done at this moment", MEMBER)
    asked = sha256_hex(canonical_bytes(request))
    known = statements.known(connection, *place)
    if known is not None:
        if known.request_hash != asked:
            raise Refused("validation_failed", "this key has been used with another request", MEMBER)
        return str(known.result_id), False
    made = make()
    names = ("realm_id", "actor_id", "operation", "key")
    statements.remember(connection, {**dict(zip(names, place, strict=True)), "request_hash": asked, "result_id": made})
    return made, True
