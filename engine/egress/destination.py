"""The URL of an endpoint, read once by one parser and kept in parts, so that nothing downstream reads it differently.

https everywhere. http only where private egress is allowed, and then only to private addresses: in the open, a body
and its signature would travel readable. A name's addresses are known only at the call, which refuses them there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from ipaddress import ip_address

import httpx

from engine.core.errors import Refused
from engine.egress.addresses import is_private

LONGEST = 2048
"""Characters of a URL."""

_PORTS = {"https": 443, "http": 80}
_LABEL = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")


@dataclass(frozen=True, slots=True)
class Destination:
    """Where a call goes. Shown without path and query: many endpoints carry their key there."""

    scheme: str
    host: str
    """Lower case ASCII name, or an address literal without brackets."""
    port: int
    target: str = field(repr=False)
    """Path and query, percent-encoded."""

    @classmethod
    def parse(cls, url: str, *, allow_private: bool = False) -> Destination:
        """The parts of `url`. Raises Refused("invalid_destination") naming the rule it breaks, never the URL."""
        _check_characters(url)
        try:
            parsed = httpx.URL(url)
            host = parsed.raw_host.decode("ascii")
            target = parsed.raw_path.decode("ascii")
        except (httpx.InvalidURL, UnicodeError, ValueError):
            raise _refused("is not a URL") from None
        if parsed.scheme not in _PORTS:
            raise _refused("must start with https://")
        authority = re.split(r"[/?]", url, maxsplit=3)[2]
        if parsed.userinfo or "@" in authority:
            raise _refused("must not carry a user name or password")
        port = _PORTS[parsed.scheme] if parsed.port is None else parsed.port
        written = re.search(r":([^\]]*)\Z", authority)
        if not 1 <= port <= 65535 or (written and not re.fullmatch(r"[0-9]{1,5}", written[1])):
            raise _refused("has a port outside 1-65535")
        _check_host(host)
        if parsed.scheme == "http" and not (allow_private and (not is_literal(host) or is_private(host))):
            raise _refused("must start with https://, unless it is private and private egress is allowed")
        return cls(parsed.scheme, host, port, target)

    @property
    def netloc(self) -> str:
        """Host and port as the Host header has them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.netloc}"


def is_literal(host: str) -> bool:
    """Whether `host` is an address rather than a name."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _check_characters(url: str) -> None:
    if len(url) > LONGEST:
        raise _refused(f"is longer than {LONGEST} characters")
    if not url.isprintable() or any(character.isspace() for character in url) or "\\" in url:
        raise _refused("holds a space, a backslash or a character that cannot be printed")
    if "#" in url:
        raise _refused("must not carry a fragment")
    if not re.match(r"https?://", url, re.IGNORECASE):
        raise _refused("must start with https://")


def _check_host(host: str) -> None:
    """A name of plain labels or a whole address. `127.1`, `0x7f.1`, `2130706433`: only the C library takes those."""
    if is_literal(host):
        if "%" in host:
            raise _refused("must not name a network interface")
        return
    labels = host.split(".")
    if len(host) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        raise _refused("has no valid host name")
    if _NUMBER.fullmatch(labels[-1]):
        raise _refused("has a host that is neither a name nor a whole address")


def _refused(rule: str) -> Refused:
    return Refused("invalid_destination", f"The destination {rule}.")
