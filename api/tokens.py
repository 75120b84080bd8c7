"""Tokens: JWTs of an issuer whose keys a `KeySource` knows. Today that is the local issuer (issuer.py); OIDC discovery is
one more source.

What the JWT library lets through is refused here (STACK.md): claims twice, numbers as text or beyond all bounds, an empty
or strange `sub`, other types of token, tokens of any size, critical headers.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, Protocol

import jwt
from jwt.exceptions import PyJWTError

from api.settings import LOCAL_ISSUER, ApiSettings
from engine.core.canonical import load
from engine.core.errors import Refused
from engine.core.ids import Prefix, is_id

Audience = Literal["admin", "account"]

MAX_TOKEN = 8192
"""Characters of a token."""

_COMPACT = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")
_TYPES = frozenset({"jwt", "at+jwt"})
_TIMES = ("exp", "iat", "nbf")


class TokenRefused(Exception):
    """The token is not one that counts. Why is for our own log: a caller is told only that."""


@dataclass(frozen=True, slots=True)
class Claims:
    """What a token says, once it is known to be true."""

    realm_id: str
    subject_id: str
    """A user or, in a token for `admin`, a service principal."""
    audience: Audience
    methods: frozenset[str]
    """`amr`: how the user signed in."""
    expires_at: datetime

    @property
    def is_machine(self) -> bool:
        """Whether a service principal calls: a token of its own, and no second factor."""
        return is_id(self.subject_id, Prefix.SERVICE_PRINCIPAL)


@dataclass(frozen=True, slots=True)
class VerifyingKey:
    """A public key and the one algorithm it is for."""

    key: Any
    algorithm: str


class KeySource(Protocol):
    """Where the keys of an issuer are found."""

    def find(self, key_id: str) -> VerifyingKey | None:
        """The key of that id, if the issuer has one now. May block."""


@dataclass(frozen=True, slots=True)
class Verifier:
    """Tells the tokens of one issuer that count from all others."""

    issuer: str
    keys: KeySource
    longest: timedelta = timedelta(hours=24)
    leeway: timedelta = timedelta(0)

    @classmethod
    def of(cls, settings: ApiSettings, keys: KeySource) -> Verifier:
        """As the operator set it."""
        return cls(LOCAL_ISSUER, keys, settings.token_lifetime, settings.token_leeway)

    def verify(self, token: str, audience: Audience) -> Claims:
        """The claims of a token for that audience. Raises TokenRefused."""
        if len(token) > MAX_TOKEN or _COMPACT.fullmatch(token) is None:
            raise TokenRefused("not a compact JWS of a sensible size")
        head, body, _ = token.split(".")
        header, claims = _object(head), _object(body)
        key = self._key(header)
        try:
            jwt.decode(
                token,
                key.key,
                algorithms=[key.algorithm],
                audience=audience,
                issuer=self.issuer,
                leeway=self.leeway,
                options={"require": ["iss", "aud", "sub", "exp", "iat"]},
            )
        except (PyJWTError, ValueError, TypeError, OverflowError, RecursionError) as error:
            raise TokenRefused(type(error).__name__) from error
        return self._checked(claims, audience)

    def _key(self, header: Mapping[str, Any]) -> VerifyingKey:
        if str(header.get("typ", "JWT")).lower() not in _TYPES or "crit" in header or "b64" in header:
            raise TokenRefused("not a plain JWT")
        key_id = header.get("kid")
        key = self.keys.find(key_id) if isinstance(key_id, str) and 0 < len(key_id) <= 200 else None
        if key is None or header.get("alg") != key.algorithm:
            raise TokenRefused("signed with no key of the issuer")
        return key

    def _checked(self, claims: Mapping[str, Any], audience: Audience) -> Claims:
        """What the library does not check. The bytes were read strictly before, and signed: they are the same claims."""
        for name in _TIMES:
            if name in claims and (not isinstance(claims[name], int) or isinstance(claims[name], bool)):
                raise TokenRefused(f"{name} is not a whole number")
        lifetime = claims["exp"] - claims["iat"]
        if not 0 < lifetime <= self.longest.total_seconds():
            raise TokenRefused("its lifetime is out of bounds")
        subject_id, realm_id, methods = claims["sub"], claims.get("realm"), claims.get("amr", [])
        is_machine = audience == "admin" and is_id(subject_id, Prefix.SERVICE_PRINCIPAL)
        if not (is_machine or is_id(subject_id, Prefix.USER)) or not is_id(realm_id, Prefix.REALM):
            raise TokenRefused("it names nobody of a realm")
        if not isinstance(methods, list) or not all(isinstance(method, str) for method in methods):
            raise TokenRefused("amr is not a list of texts")
        expires_at = datetime.fromtimestamp(claims["exp"], UTC)
        return Claims(str(realm_id), str(subject_id), audience, frozenset(methods), expires_at)


def _object(segment: str) -> dict[str, Any]:
    """A JSON object in base64url, read strictly."""
    try:
        value = load(base64.urlsafe_b64decode(segment + "=" * (-len(segment) % 4)), MAX_TOKEN)
    except (ValueError, Refused):
        raise TokenRefused("not JSON in base64url") from None
    if not isinstance(value, dict):
        raise TokenRefused("not a JSON object")
    return value
