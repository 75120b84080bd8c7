"""A token as it is written, a compact JWS (RFC 7515), read strictly before anything in it is believed.

The JWT library takes members twice, numbers of any size and headers it does not know; what it is given has passed here.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engine.core.canonical import load
from engine.core.errors import Refused

MAX_TOKEN = 8192
"""Characters of a token."""

_COMPACT = re.compile(r"([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)")
_TYPES = frozenset({"jwt", "at+jwt", "application/at+jwt"})
_REFUSED = frozenset({"crit", "b64", "jwk", "jku", "x5u", "x5c", "cty", "enc", "zip"})
"""Members of a header that would change how the rest is read, or bring the key along. Which keys count is the issuer's to say,
never the token's, so such a token is no mistake of an honest issuer: it is refused, and nothing it names is fetched."""


class TokenRefused(Exception):
    """The token is not one that counts. Why is for our own log: a caller is told only that."""


@dataclass(frozen=True, slots=True)
class Compact:
    """What a token says of itself. Not verified yet."""

    header: Mapping[str, Any]
    claims: Mapping[str, Any]
    key_id: str

    @classmethod
    def read(cls, token: str) -> Compact:
        """The parts of `token`. Raises TokenRefused."""
        written = _COMPACT.fullmatch(token) if len(token) <= MAX_TOKEN else None
        if written is None:
            raise TokenRefused("not a compact JWS of a sensible size")
        head, body, signature = written.groups()
        header, claims = _object(head), _object(body)
        _decoded(signature)
        return cls(header, claims, _key_id(header))


def _key_id(header: Mapping[str, Any]) -> str:
    """The key that a plain header names: always one, for a key is not to be guessed."""
    kind, key_id = header.get("typ", "JWT"), header.get("kid")
    if not isinstance(kind, str) or kind.lower() not in _TYPES or not _REFUSED.isdisjoint(header):
        raise TokenRefused("not a plain JWT")
    if not isinstance(key_id, str) or not 0 < len(key_id) <= 200:
        raise TokenRefused("it names no key")
    return key_id


def _object(segment: str) -> dict[str, Any]:
    """A JSON object in base64url, read strictly."""
    try:
        value = load(_decoded(segment), MAX_TOKEN)
    except Refused:
        raise TokenRefused("not JSON") from None
    if not isinstance(value, dict):
        raise TokenRefused("not a JSON object")
    return value


def _decoded(segment: str) -> bytes:
    """The bytes that `segment` stands for. They have one spelling: what is signed is the spelling of the first two, and a third
    with stray bits would make a second token out of one, which whoever looks for the first does not find."""
    try:
        raw = base64.urlsafe_b64decode(segment + "=" * (-len(segment) % 4))
    except ValueError:
        raise TokenRefused("not base64url") from None
    if base64.urlsafe_b64encode(raw).decode().rstrip("=") != segment:
        raise TokenRefused("not the one spelling of base64url")
    return raw
