"""What every request is served with. Made once when the application starts, closed when it stops."""

from __future__ import annotations

from dataclasses import dataclass, field

import anyio
from starlette.requests import HTTPConnection

from api.issuer import LocalIssuer
from api.limits import FailureLimits
from api.oidc import trusted_provider
from api.settings import LOCAL_ISSUER, ApiSettings
from api.tokens import TrustedIssuer, Verifier
from db.session import Database
from db.settings import DatabaseSettings
from engine.egress.secrets import Keyring

READERS = 2


@dataclass(frozen=True, slots=True)
class Parts:
    """The database, the keys that secrets are encrypted under, who may sign tokens, and who has failed how often."""

    database: Database
    keyring: Keyring
    issuer: LocalIssuer | None
    """None where its tokens do not count. Its key is then not even made."""
    verifier: Verifier
    limits: FailureLimits
    turns: anyio.CapacityLimiter = field(repr=False)
    """One turn a connection of the pool. A request waits for its turn without a thread: if it waited for a connection in
    one, those that have connections would find no thread to go on with."""
    readers: anyio.CapacityLimiter = field(repr=False)
    """Large bodies that are parsed at once: each is many times its size while that lasts, and keeps a core busy."""

    @classmethod
    def open(
        cls,
        settings: ApiSettings,
        database: Database | None = None,
        keyring: Keyring | None = None,
        issuer: LocalIssuer | None = None,
    ) -> Parts:
        """What is not given comes from the environment and the data folder. Raises DatabaseUnavailable and Refused.

        Asks nothing of an identity provider: the API starts while that is away.
        """
        database = database or Database.open(DatabaseSettings(), application_name="tenure api")
        data_dir = database.settings.data_dir
        local = (issuer or LocalIssuer.load(data_dir, LOCAL_ISSUER)) if settings.takes_local_tokens else None
        size = database.settings.pool_size + database.settings.pool_overflow
        return cls(
            database,
            keyring or Keyring.load(data_dir),
            local,
            Verifier.of(settings, *_trusted(settings, local)),
            FailureLimits.of(settings),
            anyio.CapacityLimiter(size),
            anyio.CapacityLimiter(READERS),
        )


def _trusted(settings: ApiSettings, local: LocalIssuer | None) -> list[TrustedIssuer]:
    own = None if local is None else TrustedIssuer(local.issuer, local)
    return [issuer for issuer in (own, trusted_provider(settings)) if issuer is not None]


def parts_of(request: HTTPConnection) -> Parts:
    """The parts that serve this request."""
    parts = request.app.state.parts
    assert isinstance(parts, Parts)
    return parts
