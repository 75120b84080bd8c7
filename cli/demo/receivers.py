"""The world outside, for the demo: a mail server and an endpoint, on loopback, that keep what they get."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from standardwebhooks import Webhook, WebhookVerificationError


@dataclass
class MailReceiver:
    """An SMTP server. `messages` are those it took, with their recipients."""

    port: int
    messages: list[tuple[str, EmailMessage]] = field(default_factory=list)

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        """Called by aiosmtpd for each message."""
        message = message_from_bytes(envelope.content, policy=policy.default)
        self.messages += [(recipient, message) for recipient in envelope.rcpt_tos]
        return "250 taken"

    def to(self, recipient: str) -> list[EmailMessage]:
        """What came for one address."""
        return [message for address, message in self.messages if address == recipient]


@contextmanager
def mail_receiver() -> Iterator[MailReceiver]:
    """A mail server on a free port."""
    from aiosmtpd.controller import Controller

    with socket.socket() as probe:  # the controller connects to its own port, so it must know it beforehand
        probe.bind(("127.0.0.1", 0))
        receiver = MailReceiver(probe.getsockname()[1])
    controller = Controller(receiver, hostname="127.0.0.1", port=receiver.port)
    controller.start()
    try:
        yield receiver
    finally:
        controller.stop()


@dataclass(frozen=True)
class ReceivedCall:
    """A call as it arrived. `is_signed`: the stock library of Standard Webhooks found its signature right."""

    headers: dict[str, str]
    body: dict[str, Any]
    is_signed: bool
    answered: int


@dataclass
class Endpoint:
    """An HTTP server that answers `status` to every call and keeps the calls."""

    url: str = ""
    secret: str = ""
    status: int = 200
    calls: list[ReceivedCall] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, headers: dict[str, str], content: bytes) -> int:
        """Verify and keep a call; returns what to answer."""
        try:
            Webhook(self.secret).verify(content.decode(), headers)
            signed = True
        except WebhookVerificationError:
            signed = False
        with self._lock:
            self.calls.append(ReceivedCall(headers, json.loads(content), signed, self.status))
            return self.status if signed else 401

    def of_run(self, run_id: str) -> list[ReceivedCall]:
        """The calls of one run."""
        with self._lock:
            return [call for call in self.calls if call.body["run_id"] == run_id]


@contextmanager
def endpoint() -> Iterator[Endpoint]:
    """An endpoint on a free port."""
    receiver = Endpoint()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers["Content-Length"]))
            status = receiver.take({name.lower(): value for name, value in self.headers.items()}, content)
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            """The demo tells of calls itself."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    receiver.url = f"http://127.0.0.1:{server.server_address[1]}/tenure"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()
