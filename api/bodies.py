"""Every JSON body is read here, by the strict reader of the engine: no NUL, no lone surrogate, no NaN, no number beyond what
a double holds, no member twice, no nesting without end (FAULTS.md, 35).

FastAPI reads the body first and asks the dependencies then. So who calls is looked at here, before (admission.py); and what the
reader refuses is answered only after the caller is known to be allowed to ask: it goes on as `UNREAD`, which no model takes.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import anyio
from fastapi import Request, Response
from fastapi.routing import APIRoute

from api.admission import admit
from api.auth import declared_by
from api.handlers import BODY_REFUSED
from api.parts import parts_of
from engine.core.canonical import load
from engine.core.errors import Refused

LARGE = 32 * 1024
"""Bytes that are read in a thread, so that the event loop goes on. Few are at once: parts.py."""

UNREAD = ""
"""Stands for a body that could not be read. Not an object of a class of ours: FastAPI lets pydantic read members off those."""


class StrictRequest(Request):
    """A request whose JSON is read strictly. Its size was limited before (edge.py)."""

    async def json(self) -> Any:
        """The body, or `UNREAD` with the reason left in the scope."""
        raw = await self.body()
        try:
            if len(raw) <= LARGE:
                return load(raw, len(raw))
            return await anyio.to_thread.run_sync(load, raw, len(raw), limiter=parts_of(self).readers)
        except Refused as refusal:
            self.scope[BODY_REFUSED] = refusal
            return UNREAD


class StrictRoute(APIRoute):
    """The class of every route of ours."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """FastAPI's own, given a strict request of a caller who is let in."""
        handler = super().get_route_handler()
        (declared,) = declared_by(self.dependant)

        async def strict(request: Request) -> Response:
            if declared.audience is not None:
                await admit(request, declared.audience)
            answer = await handler(StrictRequest(request.scope, request.receive))
            if answer.status_code == 204:
                del answer.headers["Content-Type"]  # of what is not there: clients read JSON where one is named
            return answer

        return strict
