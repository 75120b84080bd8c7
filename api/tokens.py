"""Tokens: JWTs of an issuer that the operator trusts, be it the local one (issuer.py) or a provider (oidc.py).

How a token is written is checked by compact.py, its signature by the JWT library, with one key and the one algorithm of that
key. What the library lets through besides is refused here (STACK.md): numbers as text, an empty or strange subject, an
audience for everything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, Protocol

import jwt
from jwt.exceptions import PyJWTError

from api.compact import MAX_TOKEN, Compact, TokenRefused
from api.settings import ApiSettings
from engine.core.ids import Prefix, is_id

__all__ = ["MAX_TOKEN", "Audience", "Claims", "KeySource", "TokenRefused", "TrustedIssuer", "Verifier", "VerifyingKey"]

Audience = Literal["admin", "account"]

_TIMES = ("exp", "iat", "nbf")


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
        """The key of that id, if the issuer has one now. May block for seconds. Raises Unavailable if that cannot be told."""


@dataclass(frozen=True, slots=True)
class TrustedIssuer:
    """Whose tokens count, and what it calls the things we need to know."""

    name: str
    """Its `iss`, letter for letter."""
    keys: KeySource
    subject_claim: str = "sub"
    realm_claim: str = "realm"
    admin_audience: str = "admin"
    account_audience: str = "account"

    def called(self, audience: Audience) -> str:
        """Its name for that audience."""
        return self.admin_audience if audience == "admin" else self.account_audience


@dataclass(frozen=True, slots=True)
class Verifier:
    """Tells the tokens that count from all others."""

    issuers: tuple[TrustedIssuer, ...]
    longest: timedelta = timedelta(hours=24)
    leeway: timedelta = timedelta(0)

    @classmethod
    def of(cls, settings: ApiSettings, *issuers: TrustedIssuer) -> Verifier:
        """As the operator set it."""
        return cls(issuers, settings.token_lifetime, settings.token_leeway)

    def verify(self, token: str, audience: Audience) -> Claims:
        """The claims of a token for that audience. May block as `KeySource.find`. Raises TokenRefused and Unavailable."""
        read = Compact.read(token)
        issuer = self._issuer(read.claims)
        key = issuer.keys.find(read.key_id)
        if key is None or read.header.get("alg") != key.algorithm:
            raise TokenRefused("signed with no key of the issuer")
        try:
            jwt.decode(
                token,
                key.key,
                algorithms=[key.algorithm],
                audience=issuer.called(audience),
                issuer=issuer.name,
                leeway=self.leeway,
                options={"require": ["iss", "aud", "sub", "exp", "iat"]},
            )
        except (PyJWTError, ValueError, TypeError, OverflowError, RecursionError) as error:
            raise TokenRefused(type(error).__name__) from error
        # The bytes were read strictly before, and are signed: these are the claims that the library has seen.
        _check_audience(read.claims["aud"], issuer, audience)
        return self._checked(read.claims, issuer, audience)

    def _issuer(self, claims: Mapping[str, Any]) -> TrustedIssuer:
        """The one whose keys are asked: a key of one issuer never vouches for another."""
        for issuer in self.issuers:
            if issuer.name == claims.get("iss"):
                return issuer
        raise TokenRefused("of no issuer that is trusted")

    def _checked(self, claims: Mapping[str, Any], issuer: TrustedIssuer, audience: Audience) -> Claims:
        for name in _TIMES:
            if name in claims and (not isinstance(claims[name], int) or isinstance(claims[name], bool)):
                raise TokenRefused(f"{name} is not a whole number")
        lifetime = claims["exp"] - claims["iat"]
        if not 0 < lifetime <= self.longest.total_seconds():
            raise TokenRefused("its lifetime is out of bounds")
        if not claims["sub"].strip():  # a text, as the library has made sure; of nobody's, even where it is not our id
            raise TokenRefused("it has no subject")
        subject_id, realm_id = claims.get(issuer.subject_claim), claims.get(issuer.realm_claim)
        is_machine = audience == "admin" and is_id(subject_id, Prefix.SERVICE_PRINCIPAL)
        if not (is_machine or is_id(subject_id, Prefix.USER)) or not is_id(realm_id, Prefix.REALM):
            raise TokenRefused("it names nobody of a realm")
        methods = claims.get("amr", [])
        if not isinstance(methods, list) or not all(isinstance(method, str) for method in methods):
            raise TokenRefused("amr is not a list of texts")
        expires_at = datetime.fromtimestamp(claims["exp"], UTC)
        return Claims(str(realm_id), str(subject_id), audience, frozenset(methods), expires_at)


def _check_audience(named: str | list[str], issuer: TrustedIssuer, audience: Audience) -> None:
    """A token is for one of the two. One for both would open administration to whatever was given a token to look after a
    user's own approvals, and the other way round: the two audiences exist so that this cannot be. Others may be named beside."""
    ours = {issuer.admin_audience, issuer.account_audience}
    if ours.intersection([named] if isinstance(named, str) else named) != {issuer.called(audience)}:
        raise TokenRefused("not for this audience alone")
