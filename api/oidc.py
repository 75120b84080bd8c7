"""An identity provider of the operator's (OpenID Connect Discovery 1.0; RFC 8414): where its keys are, and which they are now.

Both documents are read each time, so that a provider may move its keys as well as change them. Nothing is read before a token
asks for it: the API starts, and serves whom it can, while the provider is away.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass

from api.jwks import keys_of
from api.rotation import RotatingKeys
from api.settings import ApiSettings
from api.tokens import TrustedIssuer, VerifyingKey
from engine.core.errors import Refused, Unavailable
from engine.egress.deadline import Deadline
from engine.egress.destination import Destination
from engine.egress.documents import fetch, source

WELL_KNOWN = "/.well-known/openid-configuration"


@dataclass(frozen=True, slots=True)
class Provider:
    """What the operator has named. `tls` replaces the trusted authorities."""

    issuer: str
    tls: ssl.SSLContext | None = None

    def keys(self, deadline: Deadline) -> dict[str, VerifyingKey]:
        """The keys that it publishes and that count, by their ids; never none. Raises Unavailable: it is away, or what it says is
        not what the provider of that name would say."""
        found = keys_of(fetch(self._key_set(deadline), deadline, tls=self.tls))
        if not found:
            raise Unavailable("network_error", "The issuer publishes no key that can be used.")
        return found

    def _key_set(self, deadline: Deadline) -> Destination:
        """Where its keys are. Named by the document itself, so that one provider's cannot be passed off as another's."""
        url = self.issuer.removesuffix("/") + WELL_KNOWN
        described = fetch(source(url, plain=True), deadline, tls=self.tls)
        if not isinstance(described, dict) or described.get("issuer") != self.issuer:
            raise Unavailable("network_error", "The issuer's own description names another issuer.")
        jwks_uri = described.get("jwks_uri")
        try:
            return source(jwks_uri if isinstance(jwks_uri, str) else "", plain=self.issuer.startswith("http://"))
        except Refused:
            raise Unavailable("network_error", "The issuer's own description names no place for its keys.") from None


def trusted_provider(
    settings: ApiSettings,
    *,
    tls: ssl.SSLContext | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> TrustedIssuer | None:
    """The provider of the settings, if one is set, as an issuer that is trusted. `clock` is in seconds."""
    if settings.oidc_issuer is None:
        return None
    keys = RotatingKeys(
        Provider(settings.oidc_issuer, tls).keys,
        max_age=settings.oidc_keys_max_age.total_seconds(),
        longest=settings.oidc_keys_longest.total_seconds(),
        cool_down=settings.oidc_cool_down.total_seconds(),
        timeout=settings.oidc_timeout.total_seconds(),
        clock=clock,
    )
    return TrustedIssuer(
        settings.oidc_issuer,
        keys,
        settings.subject_claim,
        settings.realm_claim,
        settings.admin_audience,
        settings.account_audience,
    )
