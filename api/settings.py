"""What an operator may set about the API. Every name is read from the environment as TENURE_API_<NAME>."""

from __future__ import annotations

from datetime import timedelta

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from api.token_settings import TokenSettings
from db.settings import Duration

LOCAL_ISSUER = "urn:tenure:local-issuer"
"""Who signs the tokens of a machine on its own."""


SHORTEST, LONGEST = timedelta(milliseconds=100), timedelta(minutes=10)
"""Bounds of a deadline."""


class ApiSettings(TokenSettings):
    """The defaults are those of a machine on its own."""

    model_config = SettingsConfigDict(env_prefix="TENURE_API_", env_ignore_empty=True, extra="ignore", frozen=True)

    body_limit: int = Field(default=1024 * 1024, ge=128 * 1024, le=16 * 1024 * 1024)
    """Bytes of a request's body. A definition has a limit of its own (64 KiB in canonical form)."""
    metrics: bool = True
    """Whether `GET /metrics` answers. It asks for no token and shows no realm."""
    head_deadline: Duration = Field(default=timedelta(seconds=10), ge=SHORTEST, le=LONGEST)
    """Until the head of a request has arrived whole: from when its connection is made, later from its first byte. The same
    for the rest of a body whose request has been answered."""
    body_deadline: Duration = Field(default=timedelta(seconds=30), ge=SHORTEST, le=LONGEST)
    """Until a body has arrived whole, from the end of its head."""
    send_deadline: Duration = Field(default=timedelta(seconds=30), ge=SHORTEST, le=LONGEST)
    """Until a caller has taken what an answer has put on its way."""
    max_connections: int = Field(default=500, ge=2, le=100_000)
    """Open at once: fewer than the files this process may open. For one more, the one that has kept us waiting longest is
    closed."""
    invalid_tokens_per_minute: int = Field(default=60, ge=0, le=1_000_000)
    """Requests with a missing or invalid token that are answered 401, an address; more are 429. 0: any number."""
    refusals_per_minute: int = Field(default=600, ge=0, le=1_000_000)
    """Refusals (403, 404, 409, 422 and so on) a caller may collect; then all of its requests are 429. 0: any number."""
