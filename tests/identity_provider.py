"""An identity provider on this machine: a real server that describes itself, publishes keys, and misbehaves as it is told.

with an_identity_provider() as provider:
    provider.keys = [SigningKey.new("RS256")]        what it publishes
    provider.description = {"issuer": "..."}         changes to how it describes itself
    provider.instead[KEYS] = says(404)               what it does instead of a good answer
    provider.asked                                   the paths it was asked for
"""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.definitions import Json
from tests.forging import SigningKey, without_gaps, written

DESCRIPTION, KEYS = "/.well-known/openid-configuration", "/keys"

Answer = Callable[[BaseHTTPRequestHandler], None]


@dataclass
class IdentityProvider:
    """What it is, and what it has been asked."""

    issuer: str
    keys: list[SigningKey] = field(default_factory=list)
    further: list[Any] = field(default_factory=list)
    """Entries of its key set besides."""
    description: Json = field(default_factory=dict)
    instead: dict[str, Answer] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    in_hand: int = 0
    """Requests it has not answered yet."""
    closing: threading.Event = field(default_factory=threading.Event)

    def claims(self, **changes: Any) -> Json:
        """Of a token of this moment; one set to `...` is left out."""
        now = int(time.time())
        return without_gaps({"iss": self.issuer, "aud": "admin", "iat": now - 10, "exp": now + 600, **changes})

    def token(self, key: SigningKey, realm_id: str, subject_id: str, **changes: Any) -> str:
        """A token that is signed with that key."""
        claims = self.claims(sub=subject_id, realm=realm_id, amr=["pwd", "mfa"])
        return written(key, {"alg": key.algorithm, "typ": "JWT", "kid": key.id}, without_gaps({**claims, **changes}))

    @property
    def fetches(self) -> int:
        """How often its keys were asked for."""
        return self.asked.count(KEYS)

    def drips(self, asking: BaseHTTPRequestHandler) -> None:
        """As `instead`: a good head, and then one byte a second."""
        asking.send_response(200)
        asking.end_headers()
        while not self.closing.wait(1):
            asking.wfile.write(b" ")

    def hangs_up(self, asking: BaseHTTPRequestHandler) -> None:
        """As `instead`: it is away."""
        asking.close_connection = True

    def document(self, path: str) -> Json | None:
        """What is to be read there."""
        described = {"issuer": self.issuer, "jwks_uri": self.issuer + KEYS, "subject_types_supported": ["public"]}
        published = {"keys": [*(key.jwk() for key in self.keys), *self.further]}
        return {DESCRIPTION: without_gaps({**described, **self.description}), KEYS: published}.get(path)


def says(status: int, body: bytes | Json = b"", **headers: str) -> Answer:
    """As `instead`: one answer, a header's name written with `_`."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()

    def answer(asking: BaseHTTPRequestHandler) -> None:
        asking.send_response(status)
        for name, value in {"Content_Length": str(len(raw)), **headers}.items():
            asking.send_header(name.replace("_", "-"), value)
        asking.end_headers()
        asking.wfile.write(raw)

    return answer


@contextmanager
def an_identity_provider(tls: ssl.SSLContext | None = None, path: str = "") -> Iterator[IdentityProvider]:
    """One that listens until the block ends, over http or, with `tls`, https. `path` is a part of its name."""

    class Asked(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            at = self.path.removeprefix(path)
            provider.asked.append(at)
            provider.in_hand += 1
            document = provider.document(at)
            usual = says(404) if document is None else says(200, document, Content_Type="application/json")
            with suppress(OSError):  # whoever asked has gone
                provider.instead.get(at, usual)(self)
            provider.in_hand -= 1

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Asked)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    scheme = "http" if tls is None else "https"
    provider = IdentityProvider(f"{scheme}://127.0.0.1:{server.server_port}{path}")
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), name="identity provider")
    thread.start()
    try:
        yield provider
    finally:
        provider.closing.set()
        server.shutdown()
        server.server_close()
        thread.join()


def says_when_told(go: threading.Event, answer: Answer) -> Answer:
    """As `instead`: that answer, but not before `go`."""

    def answered(asking: BaseHTTPRequestHandler) -> None:
        assert go.wait(30)
        answer(asking)

    return answered


class Clock:
    """A clock that goes when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds
