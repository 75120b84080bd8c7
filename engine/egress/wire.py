"""A connected socket under one deadline and a budget of bytes, with TLS on top when asked.

Every receive and send recomputes what is left of the deadline. TLS runs over memory buffers (`SSLObject`), so that a
peer that drips its handshake, or floods records that carry nothing, meets the same deadline and the same budget.
"""

from __future__ import annotations

import io
import socket
import ssl
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from ipaddress import ip_address
from typing import TypeVar

import httpx

from engine.egress.deadline import Deadline, OutOfTime

PIECE = 16 * 1024
"""Bytes asked of the kernel at once: what a TLS record holds."""

HANDSHAKE_BUDGET = 128 * 1024
"""Bytes a TLS handshake may take; OpenSSL itself takes certificate chains up to 100 KB."""

T = TypeVar("T")


@cache
def trusted_authorities() -> ssl.SSLContext:
    """The authorities httpx trusts (SSL_CERT_FILE, SSL_CERT_DIR, else certifi's list). Built once: it takes 20 ms."""
    return httpx.create_ssl_context()


class Overrun(OSError):
    """The peer sent more than it was allowed."""


class Wire:
    """One connection. Not shared between threads; closed by whoever opened it."""

    def __init__(self, sock: socket.socket, deadline: Deadline) -> None:
        self._socket = sock
        self._deadline = deadline
        self._budget = 0
        self._tls: ssl.SSLObject | None = None
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()

    @classmethod
    def connect(cls, addresses: Sequence[str], port: int, deadline: Deadline) -> Wire:
        """To the first of `addresses` (literals) that answers, each in its share of the time. Raises OSError."""
        failure: OSError = OSError("no address")
        for index, address in enumerate(addresses):
            family = socket.AF_INET if ip_address(address).version == 4 else socket.AF_INET6
            share = deadline.remaining() / (len(addresses) - index)
            try:
                sock = socket.socket(family, socket.SOCK_STREAM)
                try:
                    sock.settimeout(share)
                    sock.connect((address, port))
                    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                except BaseException:
                    sock.close()
                    raise
            except OSError as error:
                failure = error
            else:
                return cls(sock, deadline)
        raise failure

    def until(self, deadline: Deadline) -> None:
        """Put what follows under another deadline."""
        self._deadline = deadline

    def allow(self, byte_count: int) -> None:
        """Let the peer send `byte_count` more bytes, in place of what was left."""
        self._budget = byte_count

    def start_tls(self, context: ssl.SSLContext, name: str) -> None:
        """Shake hands, checking the certificate against `name`. Raises ssl.SSLError, OSError, OutOfTime."""
        if context.verify_mode != ssl.CERT_REQUIRED or not context.check_hostname:
            raise ValueError("a TLS context that checks no certificate is not used here")
        self.allow(HANDSHAKE_BUDGET)
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=name)
        self._pump(self._tls.do_handshake)

    def receive(self, byte_count: int) -> bytes:
        """At most `byte_count` bytes, empty at the end. Raises Overrun, OSError, OutOfTime."""
        tls = self._tls
        if tls is None:
            return self._receive_raw(byte_count)
        try:
            return self._pump(partial(tls.read, byte_count))
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            return b""

    def sendall(self, payload: bytes) -> None:
        """All of `payload`. Raises OSError, OutOfTime."""
        tls = self._tls
        if tls is None:
            self._send_raw(payload)
            return
        rest = memoryview(payload)
        while rest:
            sent = self._pump(partial(tls.write, rest))
            rest = rest[sent:]

    def makefile(self, _mode: str = "rb") -> io.BufferedReader:
        """A buffered reader over `receive`, for protocols of lines. Closing it leaves the connection open."""
        return io.BufferedReader(_Reading(self))

    def close(self) -> None:
        """End the connection, without waiting for the peer."""
        self._socket.close()

    def _pump(self, step: Callable[[], T]) -> T:
        """Do `step`, moving bytes between the TLS buffers and the socket for as long as it asks for some."""
        while True:
            try:
                result = step()
            except ssl.SSLWantReadError:
                self._flush()
                received = self._receive_raw(PIECE)
                if received:
                    self._incoming.write(received)
                else:
                    self._incoming.write_eof()
            else:
                self._flush()
                return result

    def _flush(self) -> None:
        if self._outgoing.pending:
            self._send_raw(self._outgoing.read())

    def _receive_raw(self, byte_count: int) -> bytes:
        if self._budget <= 0:
            raise Overrun("the peer sent more than it was allowed")
        with self._in_time():
            received = self._socket.recv(min(byte_count, self._budget))
        self._budget -= len(received)
        return received

    def _send_raw(self, payload: bytes) -> None:
        rest = memoryview(payload)
        while rest:
            with self._in_time():
                sent = self._socket.send(rest)
            rest = rest[sent:]

    @contextmanager
    def _in_time(self) -> Iterator[None]:
        self._socket.settimeout(self._deadline.remaining())
        try:
            yield
        except TimeoutError as error:
            raise OutOfTime("the deadline has passed") from error


class _Reading(io.RawIOBase):
    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        received = self._wire.receive(len(buffer))
        buffer[: len(received)] = received
        return len(received)
