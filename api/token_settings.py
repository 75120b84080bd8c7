"""Whose tokens count, as the operator sets it. A part of the API's settings (settings.py), read as TENURE_API_<NAME>."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from db.settings import Duration
from engine.core.errors import Refused
from engine.egress.documents import source


def _issuer(url: str) -> str:
    """An issuer's name is an address without query (OpenID Connect Core, 2). Kept letter for letter: it is compared so."""
    try:
        found = source(url, plain=True)
    except Refused as refusal:
        raise ValueError(refusal.message) from None
    if "?" in found.target:
        raise ValueError("The address must not carry a query.")
    return url


Name = Annotated[str, Field(min_length=1, max_length=200)]


class TokenSettings(BaseSettings):
    """Without a provider the machine is on its own, and the local issuer signs."""

    model_config = SettingsConfigDict(
        env_prefix="TENURE_API_", env_ignore_empty=True, extra="ignore", frozen=True, hide_input_in_errors=True
    )

    token_lifetime: Duration = Field(default=timedelta(hours=24), ge=timedelta(minutes=1), le=timedelta(days=366))
    """The longest time between `iat` and `exp` that is accepted: a token cannot be taken back before it expires."""
    token_leeway: Duration = Field(default=timedelta(0), ge=timedelta(0), le=timedelta(minutes=2))
    """How far the issuer's clock may be from ours."""

    oidc_issuer: Annotated[str, AfterValidator(_issuer)] | None = None
    """The provider, as its tokens and its own description name it. https; http on this machine only."""
    local_issuer: bool | None = None
    """Whether the tokens of the local issuer count. Not set: only while there is no provider."""
    subject_claim: Name = "sub"
    """The claim of a provider's token that holds our id of the user or service principal."""
    realm_claim: Name = "realm"
    """The one that holds our id of the realm."""
    admin_audience: Name = "admin"
    """What a provider's token for administration names as its audience."""
    account_audience: Name = "account"
    """What one for self-service does."""

    oidc_keys_max_age: Duration = Field(default=timedelta(minutes=5), ge=timedelta(seconds=10), le=timedelta(hours=1))
    """A provider's keys are fetched again when they are older: one it has withdrawn counts no longer than this."""
    oidc_keys_longest: Duration = Field(default=timedelta(hours=1), ge=timedelta(seconds=10), le=timedelta(hours=24))
    """How long they count while the provider is away, from when they were fetched."""
    oidc_cool_down: Duration = Field(default=timedelta(seconds=30), ge=timedelta(seconds=1), le=timedelta(minutes=10))
    """A key nobody has heard of makes us ask the provider, but not again within this time; nor is one that is away asked."""
    oidc_timeout: Duration = Field(
        default=timedelta(seconds=3), ge=timedelta(milliseconds=100), le=timedelta(seconds=10)
    )
    """For its description and its keys together."""

    @property
    def takes_local_tokens(self) -> bool:
        """Whether the local issuer is trusted."""
        return self.oidc_issuer is None if self.local_issuer is None else self.local_issuer

    @model_validator(mode="after")
    def _fit(self) -> Self:
        if self.oidc_issuer is None and not self.takes_local_tokens:
            raise ValueError("without TENURE_API_OIDC_ISSUER and TENURE_API_LOCAL_ISSUER nobody can sign a token")
        if self.admin_audience == self.account_audience:
            raise ValueError("TENURE_API_ADMIN_AUDIENCE and TENURE_API_ACCOUNT_AUDIENCE must differ")
        if self.oidc_keys_longest < self.oidc_keys_max_age:
            raise ValueError("TENURE_API_OIDC_KEYS_LONGEST must not be shorter than TENURE_API_OIDC_KEYS_MAX_AGE")
        return self
