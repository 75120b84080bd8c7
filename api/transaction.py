"""The transaction of a route: opened before it, committed behind it, and only then answered.

With FastAPI's default scope a dependency ends behind the answer, and a COMMIT that fails has been told as done (STACK.md,
trap 17; FAULTS.md, 39). Hence `scope="function"`, here and in all that depends on it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Annotated

from fastapi import Depends, Request
from sqlalchemy import Connection

from api.parts import parts_of


async def turn(request: Request) -> AsyncIterator[None]:
    """Wait, without a thread, until a connection of the pool is free."""
    async with parts_of(request).turns:
        yield


def transaction(request: Request, turn: Annotated[None, Depends(turn, scope="function")]) -> Iterator[Connection]:
    """A transaction; rolled back when the route raises."""
    with parts_of(request).database.begin() as connection:
        yield connection


Transaction = Annotated[Connection, Depends(transaction, scope="function")]
