"""One POST to an endpoint, and what its answer means (source: "Step call contract"; lifecycle.md, decision 8).

httpx reads the URL (destination.py) and its engine, httpcore, speaks HTTP/1.1 over a connection of our own (wire.py):
resolved once, every address checked, the checked one connected to. There is no `httpx.Client`: it would follow
environment variables, keep cookies from one realm to the next, and log each URL with its query.
A connection is used once.
"""

from __future__ import annotations

import re
import ssl
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import datetime
from email.utils import parsedate_to_datetime
from itertools import islice

import httpcore

from engine.core.errors import Refused, Unavailable
from engine.egress.addresses import is_private, may_reach
from engine.egress.deadline import Deadline, OutOfTime
from engine.egress.destination import Destination, is_literal
from engine.egress.names import Resolve, addresses_of, system_addresses
from engine.egress.wire import Overrun, Wire, trusted_authorities

__all__ = ["Answer", "Destination", "OutgoingCall", "WireStream", "classify", "post"]

RESPONSE_LIMIT = 64 * 1024
"""Bytes of a response that are read, as they travel. A body that goes on is cut off there, which changes nothing."""

HEAD_LIMIT = 32 * 1024
"""Bytes of them that may pass before the end of the headers, interim (1xx) answers included."""

BODY_PIECES = 1024
"""Chunks of a body that are read: parsing 10,000 chunks of a byte would take most of a second of every other call."""

ADDRESSES_TRIED = 8
"""Addresses of one name that are tried; all are checked."""

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")
_OURS = frozenset({"host", "content-length", "transfer-encoding", "connection", "accept-encoding", "expect", "te"})


@dataclass(frozen=True, slots=True)
class OutgoingCall:
    """What is sent. The body and the headers (a signature among them) are not shown."""

    destination: Destination
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)
    allow_private: bool = False
    """Whether private addresses may be reached: the operator's setting and the subscription's, both."""

    def __post_init__(self) -> None:
        for name, value in self.headers.items():
            if not _NAME.fullmatch(name) or name.lower() in _OURS or not _VALUE.fullmatch(value):
                raise ValueError(f"header {name!r} cannot be sent")


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    status: int
    retry_after_seconds: int | None
    """What Retry-After asked for, not capped. A date counts from the answer's own Date: no clock of ours decides."""
    elapsed: float
    """Seconds, from the lookup of the name to the end of the body."""


def classify(answer: Answer) -> Refused | Unavailable | None:
    """None if the answer completes the step, else how it failed: permanently or for now."""
    status = answer.status
    if 200 <= status <= 299:
        return None
    if not 100 <= status <= 599:
        return Unavailable("network_error", "The endpoint answered with a status that HTTP does not have.")
    if status == 410:
        return Refused("gone", "The endpoint answered 410: it is gone.")
    if 400 <= status <= 499 and status not in (408, 429):
        return Refused(f"http_{status}", f"The endpoint answered {status}.")
    return Unavailable(f"http_{status}", f"The endpoint answered {status}.")


def post(
    call: OutgoingCall,
    *,
    deadline: float,
    resolve: Resolve = system_addresses,
    tls: ssl.SSLContext | None = None,
) -> Answer:
    """Send `call`; name, connection, TLS, request, headers and body share `deadline` seconds.

    An answer counts once its body has ended, or enough of it was read to ignore it. `tls` replaces the trusted
    authorities. Raises Unavailable: `timeout`, `network_error` or `egress_denied`.
    """
    started = time.monotonic()
    limit = Deadline.after(deadline)
    host = call.destination.host
    try:
        with closing(_connected(call, limit, resolve)) as wire:
            if call.destination.scheme == "https":
                wire.start_tls(tls or trusted_authorities(), host)
            status, headers = _exchange(call, wire)
    except OutOfTime:
        raise Unavailable("timeout", f"{host} did not answer within {deadline:g} seconds.") from None
    except ssl.SSLCertVerificationError:
        raise Unavailable("network_error", f"{host} showed a certificate that is not valid for it.") from None
    except Overrun:
        raise Unavailable("network_error", f"{host} sent more than {HEAD_LIMIT} bytes before a body.") from None
    except (OSError, httpcore.RemoteProtocolError):
        if limit.is_over:  # an address that used up its share of the time, or a failure at the last moment
            raise Unavailable("timeout", f"{host} did not answer within {deadline:g} seconds.") from None
        raise Unavailable("network_error", f"The exchange with {host} failed.") from None
    return Answer(status, _retry_after(headers), time.monotonic() - started)


def _connected(call: OutgoingCall, limit: Deadline, resolve: Resolve) -> Wire:
    """A connection to an address of the destination, all of its addresses checked."""
    destination = call.destination
    literal = is_literal(destination.host)
    addresses = [destination.host] if literal else addresses_of(destination.host, resolve, limit)
    if not all(may_reach(address, allow_private=call.allow_private) for address in addresses):
        raise Unavailable("egress_denied", f"{destination.host} leads to an address that may not be reached.")
    if destination.scheme == "http" and not all(is_private(address) for address in addresses):
        raise Unavailable("egress_denied", f"{destination.host} is not private: it may be reached over https only.")
    return Wire.connect(addresses[:ADDRESSES_TRIED], destination.port, limit)


def _exchange(call: OutgoingCall, wire: Wire) -> tuple[int, list[tuple[bytes, bytes]]]:
    """Send the request, read the answer's head, and its body up to the limit."""
    request = _request(call)
    connection = httpcore.HTTP11Connection(origin=request.url.origin, stream=WireStream(wire))
    wire.allow(HEAD_LIMIT)
    response = connection.handle_request(request)
    wire.allow(RESPONSE_LIMIT - HEAD_LIMIT)
    with suppress(Overrun):  # enough was read to ignore it
        for _ in islice(response.iter_stream(), BODY_PIECES):
            pass
    return response.status, response.headers


def _request(call: OutgoingCall) -> httpcore.Request:
    destination = call.destination
    own = {
        "Host": destination.netloc,
        "Content-Length": str(len(call.body)),
        "Accept-Encoding": "identity",
        "Connection": "close",
    }
    url = httpcore.URL(
        scheme=destination.scheme.encode(),
        host=destination.host.encode(),
        port=destination.port,
        target=destination.target.encode(),
    )
    return httpcore.Request("POST", url, headers=list({**own, **call.headers}.items()), content=call.body)


def _retry_after(headers: list[tuple[bytes, bytes]]) -> int | None:
    found = {name.lower(): value.decode("ascii", "replace").strip() for name, value in headers}
    wanted = found.get(b"retry-after", "")
    if re.fullmatch(r"[0-9]{1,9}", wanted):
        return int(wanted)
    until, sent = _moment(wanted), _moment(found.get(b"date", ""))
    if until is None or sent is None:
        return None
    return max(0, int((until - sent).total_seconds()))


def _moment(value: str) -> datetime | None:
    try:
        moment = parsedate_to_datetime(value)
    except (ValueError, TypeError, OverflowError):
        return None
    return moment if moment.tzinfo is not None else None


class WireStream(httpcore.NetworkStream):
    """A Wire as httpcore wants it. The timeouts httpcore passes are ignored: the wire has its deadline.

    Head and body of the request go out as one piece, when the answer is first asked for. An endpoint may answer and
    close before it has taken all of it: a failure to send is for what it sent, or did not send, to explain.
    """

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._unsent = bytearray()

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        if self._unsent:
            request = bytes(self._unsent)
            self._unsent.clear()
            try:
                self._wire.sendall(request)
            except OutOfTime:
                raise
            except OSError:
                pass
        return self._wire.receive(max_bytes)

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._unsent += buffer

    def close(self) -> None:
        self._wire.close()
