"""The transaction of a route: opened before it, committed behind it, and only then answered.

With FastAPI's default scope a dependency ends behind the answer, and a COMMIT that fails has been told as done (STACK.md,
trap 17; FAULTS.md, 39). Hence `scope="function"`, here and in all that depends on it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Annotated

import anyio
from fastapi import Depends, Request
from sqlalchemy import Connection

from api.parts import parts_of
from api.problems import Problem

HURRY = timedelta(seconds=2)
"""How long readiness waits: whoever asks for it asks again."""


async def turn(request: Request) -> AsyncIterator[None]:
    """Wait, without a thread, until a connection of the pool is free: as long as the pool itself would wait."""
    async with _turn(request, parts_of(request).database.settings.pool_timeout):
        yield


async def hurried_turn(request: Request) -> AsyncIterator[None]:
    """The same, but not for long."""
    async with _turn(request, HURRY):
        yield


def transaction(request: Request, turn: Annotated[None, Depends(turn, scope="function")]) -> Iterator[Connection]:
    """A transaction; rolled back when the route raises."""
    with parts_of(request).database.begin() as connection:
        yield connection


def hurried_transaction(
    request: Request, turn: Annotated[None, Depends(hurried_turn, scope="function")]
) -> Iterator[Connection]:
    """The same, begun soon or not at all."""
    with parts_of(request).database.begin() as connection:
        yield connection


Transaction = Annotated[Connection, Depends(transaction, scope="function")]
HurriedTransaction = Annotated[Connection, Depends(hurried_transaction, scope="function")]


@asynccontextmanager
async def _turn(request: Request, within: timedelta) -> AsyncIterator[None]:
    """Raises Problem("overloaded"): it did not come, or whoever asked has gone meanwhile, and nobody is to wait for that."""
    turns = parts_of(request).turns
    try:
        with anyio.fail_after(within.total_seconds()):
            await turns.acquire()
    except TimeoutError:
        raise Problem("overloaded") from None
    try:
        if await request.is_disconnected():
            raise Problem("overloaded")
        yield
    finally:
        turns.release()
