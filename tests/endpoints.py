"""Endpoints for `call_webhook` steps, on this machine: one that answers as it is told, and one that never does."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from pytest_httpserver import HTTPServer
from standardwebhooks import Webhook
from werkzeug import Request, Response

from engine.outbox import subscriptions
from tests.definitions import Json
from tests.factories import TestRealm

SECRET = "whsec_" + "c2VzYW1l" * 5


@dataclass(frozen=True)
class Received:
    """A call as it came in."""

    headers: dict[str, str]
    raw: bytes
    body: Json


@dataclass
class Endpoint:
    """Answers calls in turn with `execute` or `compensate`, and with 204 when those are used up. Every signature is verified
    with the stock library. While `hold` is not set, nothing is answered."""

    server: HTTPServer
    realm: TestRealm
    path: str = "/hook"
    execute: list[Response] = field(default_factory=list)
    compensate: list[Response] = field(default_factory=list)
    calls: list[Received] = field(default_factory=list)
    hold: threading.Event = field(default_factory=threading.Event)
    subscription: str = ""

    def __post_init__(self) -> None:
        self.hold.set()
        self.server.expect_request(self.path).respond_with_handler(self._answer)
        url = self.server.url_for(self.path)
        self.subscription = self.realm.subscription(url, secret=SECRET, allow_private_network=True)

    def become(self, state: str) -> None:
        """The administrator pauses, disables or deletes the subscription, or makes it active again."""
        events = {"active": "resume", "paused": "pause", "disabled": "disable"}
        with self.realm.database.begin() as connection:
            if state == "deleted":
                subscriptions.delete(connection, self.realm.cause, self.subscription)
            else:
                subscriptions.change_state(connection, self.realm.cause, self.subscription, events[state])

    def of(self, action: str) -> list[Received]:
        """The calls of that action."""
        return [call for call in self.calls if call.body["action"] == action]

    def _answer(self, request: Request) -> Response:
        headers, raw = dict(request.headers), request.get_data()
        body: Any = Webhook(SECRET).verify(raw, headers)
        self.calls.append(Received(headers, raw, body))
        assert self.hold.wait(20)
        answers = self.execute if body["action"] == "execute" else self.compensate
        return answers.pop(0) if answers else Response(status=204)


@contextmanager
def silent_endpoint() -> Iterator[str]:
    """The URL of an endpoint that takes connections and never says a word. What is out when it goes is cut off."""
    with socket.create_server(("127.0.0.1", 0), backlog=256) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"


def nobody_s_url() -> str:
    """The URL of a port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"http://127.0.0.1:{listener.getsockname()[1]}/"
