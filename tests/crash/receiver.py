"""The world outside: an HTTP endpoint and a mail relay that keep what they got.

The path of a call says how it is answered: /ok with 204, /gone with 410, /held/... with 204 once it is let go.
"""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from aiosmtpd.controller import Controller
from standardwebhooks import Webhook

from db.postgres.cluster import free_port

SECRET = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="
"""What every subscription of these tests signs with."""


@dataclass(frozen=True)
class Call:
    """A call whose signature the stock library accepted."""

    path: str
    webhook_id: str
    key: str
    body: dict[str, Any]


@dataclass
class Receiver:
    """An endpoint on the loopback."""

    port: int = 0
    calls: list[Call] = field(default_factory=list)
    unsigned: list[str] = field(default_factory=list)
    """Calls that the stock library refused."""
    _waiting: dict[str, list[threading.Event]] = field(default_factory=lambda: defaultdict(list))
    """By path, one for each call that waits, in the order in which they came."""

    def url(self, path: str) -> str:
        """Where a path of it is."""
        return f"http://127.0.0.1:{self.port}{path}"

    def of(self, *run_ids: str) -> list[Call]:
        """What it got from these runs."""
        wanted = set(run_ids)
        return [call for call in list(self.calls) if call.body["run_id"] in wanted]

    def release(self, path: str) -> None:
        """Let go who has waited longest at this path."""
        self._waiting[path].pop(0).set()

    def take(self, path: str, headers: dict[str, str], body: bytes) -> int:
        """Keep a call; how to answer it."""
        try:
            Webhook(SECRET).verify(body, headers)
        except Exception as error:
            self.unsigned.append(f"{path} {type(error).__name__}")
            return 401
        told = {name.lower(): value for name, value in headers.items()}
        released = threading.Event()
        if path.startswith("/held/"):
            self._waiting[path].append(released)
        self.calls.append(Call(path, told["webhook-id"], told["idempotency-key"], json.loads(body)))
        if path.startswith("/held/"):
            released.wait(30)
        return 410 if path == "/gone" else 204


@contextmanager
def a_receiver() -> Iterator[Receiver]:
    """An endpoint that listens."""
    receiver = Receiver()

    class Endpoint(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status = receiver.take(self.path, dict(self.headers), body)
            try:
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()
            except OSError:
                pass  # whoever called was killed meanwhile

        def log_message(self, *_: object) -> None:
            """Nothing on standard error."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 256

        def handle_error(self, request: object, client_address: object) -> None:
            """A caller that was killed in the middle of its request is what these tests are about."""

    server = Server(("127.0.0.1", 0), Endpoint)
    receiver.port = server.server_port
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, name="receiver", daemon=True).start()
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()


class Mailbox:
    """A mail relay: the Message-Ids it took, in order, by recipient."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, str]] = []
        """(recipient, Message-Id)"""

    async def handle_DATA(self, server: object, session: object, envelope: Any) -> str:
        head = envelope.content.decode("utf-8", "replace").replace("\r\n ", " ")
        (message_id,) = (line[11:].strip() for line in head.splitlines() if line.lower().startswith("message-id:"))
        self.messages += [(recipient, message_id) for recipient in envelope.rcpt_tos]
        return "250 OK"

    def of(self, recipient: str) -> list[str]:
        """The Message-Ids of what was sent to this address."""
        return [message_id for to, message_id in list(self.messages) if to == recipient]


@contextmanager
def a_mailbox() -> Iterator[tuple[Mailbox, int]]:
    """A relay that listens, and its port."""
    mailbox = Mailbox()
    controller = Controller(mailbox, hostname="127.0.0.1", port=free_port())
    controller.start()
    try:
        yield mailbox, controller.port
    finally:
        controller.stop()
