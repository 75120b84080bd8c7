"""What an operator may set about the API. Every name is read from the environment as TENURE_API_<NAME>."""

from __future__ import annotations

from datetime import timedelta

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

LOCAL_ISSUER = "urn:tenure:local-issuer"
"""Who signs the tokens of a machine on its own."""


class ApiSettings(BaseSettings):
    """The defaults are those of a machine on its own."""

    model_config = SettingsConfigDict(env_prefix="TENURE_API_", env_ignore_empty=True, extra="ignore", frozen=True)

    body_limit: int = Field(default=1024 * 1024, ge=128 * 1024, le=16 * 1024 * 1024)
    """Bytes of a request's body. A definition has a limit of its own (64 KiB in canonical form)."""
    token_lifetime: timedelta = Field(default=timedelta(hours=24), ge=timedelta(minutes=1), le=timedelta(days=366))
    """The longest time between `iat` and `exp` that is accepted: a token cannot be taken back before it expires."""
    token_leeway: timedelta = Field(default=timedelta(0), ge=timedelta(0), le=timedelta(minutes=2))
    """How far the issuer's clock may be from ours."""
