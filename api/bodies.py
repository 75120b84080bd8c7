"""Every JSON body is read here, by the strict reader of the engine: no NUL, no lone surrogate, no NaN, no number beyond what
a double holds, no member twice, no nesting without end (FAULTS.md, 35).

What it refuses is answered only after the caller is known to be allowed to ask: FastAPI reads the body first and asks the
dependencies then, so a body that cannot be read goes on as `UNREAD`, which no model takes.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.concurrency import run_in_threadpool

from api.handlers import BODY_REFUSED
from engine.core.canonical import load
from engine.core.errors import Refused

LARGE = 32 * 1024
"""Bytes that are read in a thread, so that the event loop goes on."""


UNREAD = ""
"""Stands for a body that could not be read. Not an object of a class of ours: FastAPI lets pydantic read members off those."""


class StrictRequest(Request):
    """A request whose JSON is read strictly. Its size was limited before (edge.py)."""

    async def json(self) -> Any:
        """The body, or `UNREAD` with the reason left in the scope."""
        raw = await self.body()
        try:
            return load(raw, len(raw)) if len(raw) <= LARGE else await run_in_threadpool(load, raw, len(raw))
        except Refused as refusal:
            self.scope[BODY_REFUSED] = refusal
            return UNREAD


class StrictRoute(APIRoute):
    """The class of every route of ours."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """FastAPI's own, given a strict request."""
        handler = super().get_route_handler()

        async def strict(request: Request) -> Response:
            return await handler(StrictRequest(request.scope, request.receive))

        return strict
