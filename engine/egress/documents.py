"""One GET of a JSON document that the operator's identity provider publishes.

Where a call (http.py) goes is a tenant's word and its answer is ignored. Here the address is the operator's word, so private
addresses may be reached, and the answer counts, so only a whole one does: status 200, JSON read strictly, small, as it was
sent. Redirects are not followed, nothing is decompressed, no proxy is used, and every certificate is verified (an authority of
the operator's own: SSL_CERT_FILE). A connection is used once.
"""

from __future__ import annotations

import ssl
from contextlib import closing
from ipaddress import ip_address
from itertools import islice
from typing import Any

import httpcore

from engine.core.canonical import load
from engine.core.errors import Refused, Unavailable
from engine.egress.addresses import may_reach
from engine.egress.deadline import Deadline, OutOfTime
from engine.egress.destination import Destination, is_literal
from engine.egress.http import ADDRESSES_TRIED, BODY_PIECES, HEAD_LIMIT, WireStream
from engine.egress.names import Resolve, addresses_of, system_addresses
from engine.egress.wire import Overrun, Wire, trusted_authorities

LARGEST = 256 * 1024
"""Bytes of a document. Key sets with whole certificates in them are a tenth of that."""


def source(url: str, *, plain: bool) -> Destination:
    """Where a document lies: https, or, if `plain` will do, http on this machine: further away, whoever is in between could
    put in keys of their own. Raises Refused("invalid_destination"), without the URL."""
    found = Destination.parse(url, allow_private=True)
    if found.scheme == "http" and not (plain and (found.host == "localhost" or _is_here(found.host))):
        raise Refused("invalid_destination", "The address must start with https://, unless it is on this machine.")
    return found


def fetch(
    document: Destination,
    deadline: Deadline,
    *,
    resolve: Resolve = system_addresses,
    tls: ssl.SSLContext | None = None,
) -> Any:
    """The value that the document holds. Raises Unavailable: `timeout`, `network_error` or `egress_denied`."""
    host = document.host
    try:
        with closing(_connected(document, deadline, resolve)) as wire:
            if document.scheme == "https":
                wire.start_tls(tls or trusted_authorities(), host)
            return load(_body(document, wire), LARGEST)
    except OutOfTime:
        raise Unavailable("timeout", f"{host} did not answer in time.") from None
    except ssl.SSLCertVerificationError:
        raise Unavailable("network_error", f"{host} showed a certificate that is not valid for it.") from None
    except Overrun:
        raise Unavailable("network_error", f"{host} sent more than a document may have.") from None
    except Refused:
        raise Unavailable("network_error", f"{host} sent what is not plain JSON.") from None
    except (OSError, httpcore.RemoteProtocolError):
        category = "timeout" if deadline.is_over else "network_error"
        raise Unavailable(category, f"The exchange with {host} failed.") from None


def _connected(document: Destination, deadline: Deadline, resolve: Resolve) -> Wire:
    host = document.host
    addresses = [host] if is_literal(host) else addresses_of(host, resolve, deadline)
    if not all(may_reach(address, allow_private=True) for address in addresses):
        raise Unavailable("egress_denied", f"{host} leads to an address that may not be reached.")
    if document.scheme == "http" and not all(_is_here(address) for address in addresses):
        raise Unavailable("egress_denied", f"{host} is not this machine: it may be reached over https only.")
    return Wire.connect(addresses[:ADDRESSES_TRIED], document.port, deadline)


def _body(document: Destination, wire: Wire) -> bytes:
    request = _request(document)
    connection = httpcore.HTTP11Connection(origin=request.url.origin, stream=WireStream(wire))
    wire.allow(HEAD_LIMIT)
    response = connection.handle_request(request)
    encodings = [value for name, value in response.headers if name.lower() == b"content-encoding"]
    if response.status != 200 or any(value.strip().lower() != b"identity" for value in encodings):
        raise Unavailable("network_error", f"{document.host} did not answer with the document as it is.")
    wire.allow(LARGEST + HEAD_LIMIT)  # room for the frames around it
    pieces = list(islice(response.iter_stream(), BODY_PIECES + 1))
    if len(pieces) > BODY_PIECES:
        raise Overrun("too many pieces")
    return b"".join(pieces)


def _request(document: Destination) -> httpcore.Request:
    headers = {
        "Host": document.netloc,
        "Accept": "application/json",
        "Accept-Encoding": "identity",
        "Connection": "close",
    }
    url = httpcore.URL(
        scheme=document.scheme.encode(),
        host=document.host.encode(),
        port=document.port,
        target=document.target.encode(),
    )
    return httpcore.Request("GET", url, headers=list(headers.items()))


def _is_here(host: str) -> bool:
    """Whether `host` is an address of this machine's own."""
    return is_literal(host) and ip_address(host).is_loopback
