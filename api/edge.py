"""The outermost layer, in plain ASGI: a request id, a limit to the body, and an answer to errors that nobody expected.

Starlette answers an unexpected error and then raises it again, and the server logs it with its text and whatever a caller
sent; here it ends, logged by its kind and place alone.
"""

from __future__ import annotations

import re
import secrets

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.handlers import log_unexpected
from api.problems import MEDIA_TYPE, TYPE, Problem

_SANE = re.compile(r"[A-Za-z0-9._-]{1,64}")
"""A request id of a caller that we take over."""

HEADERS = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}


class Edge:
    """Wraps the application. `body_limit` is in bytes."""

    def __init__(self, app: ASGIApp, body_limit: int) -> None:
        self.app = app
        self.body_limit = body_limit

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
                sent = MutableHeaders(scope=message)
                sent["X-Request-Id"] = request_id
                for name, value in HEADERS.items():
                    sent.setdefault(name, value)
            await send(message)

        if self._announced(headers) > self.body_limit:
            await _answer(Problem("content_too_large"))(scope, receive, send_marked)
            return
        try:
            await self.app(scope, self._limited(receive), send_marked)
        except Exception as error:
            log_unexpected(error, request_id)
            if started:
                raise ConnectionAbortedError("the answer was cut off by an error that is in the log") from None
            await _answer(Problem("internal_error"))(scope, receive, send_marked)

    def _announced(self, headers: Headers) -> int:
        """Bytes of the body as its header says. Digits without end are too many."""
        length = headers.get("content-length", "0")
        if not length.isascii() or not length.isdigit():
            return 0
        return int(length) if len(length) <= 18 else self.body_limit + 1

    def _limited(self, receive: Receive) -> Receive:
        """Counts what arrives, whatever was announced."""
        arrived = 0

        async def counted() -> Message:
            nonlocal arrived
            message = await receive()
            arrived += len(message.get("body", b""))
            if arrived > self.body_limit:
                raise HTTPException(413)
            return message

        return counted


def _request_id(headers: Headers) -> str:
    given = headers.get("x-request-id", "")
    return given if _SANE.fullmatch(given) else f"req_{secrets.token_hex(12)}"


def _answer(problem: Problem) -> JSONResponse:
    return JSONResponse(problem.marshal(uri=TYPE), problem.status, dict(problem.headers or {}), MEDIA_TYPE)
