"""The outermost layer, in plain ASGI: a request id, limits to head and body, a deadline for the body, and an answer to errors
that nobody expected. What comes before a request is one is for connections.py.

Starlette answers an unexpected error and then raises it again, and the server logs it with its text and whatever a caller
sent; here it ends, logged by its kind and place alone.
"""

from __future__ import annotations

import asyncio
import re
import secrets

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.handlers import log_unexpected
from api.problems import MEDIA_TYPE, TYPE, Problem
from api.settings import ApiSettings

HEAD_LIMIT = 16 * 1024
"""Bytes of a request's line and headers."""

_SANE = re.compile(r"[A-Za-z0-9._-]{1,64}")
"""A request id of a caller that we take over."""

HEADERS = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}
CLOSE = {"Connection": "close"}
"""What follows on this connection is not to be trusted, or not to be waited for."""

STOPPED = "The server is being stopped; whether this was done is to be seen by reading again."


class Edge:
    """Wraps the application."""

    def __init__(self, app: ASGIApp, settings: ApiSettings) -> None:
        self.app = app
        self.body_limit = settings.body_limit
        self.body_deadline = settings.body_deadline.total_seconds()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        request_id = _request_id(headers)
        scope.setdefault("state", {})["request_id"] = request_id
        started = False

        async def send_marked(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                mark(MutableHeaders(scope=message), request_id)
            await send(message)

        refusal = self._refusal(scope, headers)
        if refusal is not None:
            await answer(refusal)(scope, receive, send_marked)
            return
        try:
            await self.app(scope, self._bounded(receive), send_marked)
        except asyncio.CancelledError:  # the server is stopped, and has waited as long as it may
            if not started:
                await answer(Problem("unavailable", STOPPED, headers=CLOSE))(scope, receive, send_marked)
        except Exception as error:
            log_unexpected(error, request_id)
            if started:
                raise ConnectionAbortedError("the answer was cut off by an error that is in the log") from None
            await answer(Problem("internal_error"))(scope, receive, send_marked)

    def _refusal(self, scope: Scope, headers: Headers) -> Problem | None:
        """What is wrong with the head alone."""
        if _size(scope) > HEAD_LIMIT:
            return Problem("head_too_large", headers=CLOSE)
        if "content-length" in headers and "transfer-encoding" in headers:  # where it ends, two servers may not agree
            return Problem("bad_request", headers=CLOSE)
        if self._announced(headers) > self.body_limit:
            return Problem("content_too_large")
        return None

    def _announced(self, headers: Headers) -> int:
        """Bytes of the body as its header says. Digits without end are too many."""
        length = headers.get("content-length", "0")
        if not length.isascii() or not length.isdigit():
            return 0
        return int(length) if len(length) <= 18 else self.body_limit + 1

    def _bounded(self, receive: Receive) -> Receive:
        """Counts what arrives, whatever was announced, and waits for all of it together no longer than the deadline."""
        arrived, whole = 0, False
        until = asyncio.get_running_loop().time() + self.body_deadline

        async def bounded() -> Message:
            nonlocal arrived, whole
            if whole:  # and now only whether the caller is still there
                return await receive()
            try:
                async with asyncio.timeout_at(until):
                    message = await receive()
            except TimeoutError:
                raise HTTPException(408, headers=CLOSE) from None
            whole = not message.get("more_body", False)
            arrived += len(message.get("body", b""))
            if arrived > self.body_limit:
                raise HTTPException(413)
            return message

        return bounded


def answer(problem: Problem) -> JSONResponse:
    """A problem that is answered outside of the application."""
    return JSONResponse(problem.marshal(uri=TYPE), problem.status, dict(problem.headers or {}), MEDIA_TYPE)


def mark(headers: MutableHeaders, request_id: str) -> None:
    """What every answer says."""
    headers["X-Request-Id"] = request_id
    for name, value in HEADERS.items():
        headers.setdefault(name, value)


def new_request_id() -> str:
    """The id of a request that brought none."""
    return f"req_{secrets.token_hex(12)}"


def _request_id(headers: Headers) -> str:
    given = headers.get("x-request-id", "")
    return given if _SANE.fullmatch(given) else new_request_id()


def _size(scope: Scope) -> int:
    """Bytes of the head, about as it was sent."""
    line = len(scope["raw_path"]) + len(scope["query_string"])
    return line + sum(len(name) + len(value) + 4 for name, value in scope["headers"])
