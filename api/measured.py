"""A layer around all others, in plain ASGI: counts every request and how long it took, whoever answered it."""

from __future__ import annotations

import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.metrics import NO_ROUTE, Metrics


class Measured:
    """Wraps the application."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self.app = app
        self.metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status = time.perf_counter(), None

        async def send_seen(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, send_seen)
        finally:
            self.metrics.count(_template(scope), scope["method"], status, time.perf_counter() - began)


def _template(scope: Scope) -> str:
    """The path of the route with its parameters in braces, within the realm if it is one of a realm."""
    return str(getattr(scope.get("route"), "path", NO_ROUTE))
