"""What every request is served with. Made once when the application starts, closed when it stops."""

from __future__ import annotations

from dataclasses import dataclass, field

import anyio
from starlette.requests import HTTPConnection

from api.issuer import LocalIssuer
from api.settings import LOCAL_ISSUER, ApiSettings
from api.tokens import Verifier
from db.session import Database
from db.settings import DatabaseSettings
from engine.egress.secrets import Keyring


@dataclass(frozen=True, slots=True)
class Parts:
    """The database, the keys that secrets are encrypted under, and who may sign tokens."""

    database: Database
    keyring: Keyring
    issuer: LocalIssuer
    verifier: Verifier
    turns: anyio.CapacityLimiter = field(repr=False)
    """One turn a connection of the pool. A request waits for its turn without a thread: if it waited for a connection in
    one, those that have connections would find no thread to go on with."""

    @classmethod
    def open(
        cls,
        settings: ApiSettings,
        database: Database | None = None,
        keyring: Keyring | None = None,
        issuer: LocalIssuer | None = None,
    ) -> Parts:
        """What is not given comes from the environment and the data folder. Raises DatabaseUnavailable and Refused."""
        database = database or Database.open(DatabaseSettings(), application_name="tenure api")
        data_dir = database.settings.data_dir
        issuer = issuer or LocalIssuer.load(data_dir, LOCAL_ISSUER)
        size = database.settings.pool_size + database.settings.pool_overflow
        return cls(
            database,
            keyring or Keyring.load(data_dir),
            issuer,
            Verifier.of(settings, issuer),
            anyio.CapacityLimiter(size),
        )


def parts_of(request: HTTPConnection) -> Parts:
    """The parts that serve this request."""
    parts = request.app.state.parts
    assert isinstance(parts, Parts)
    return parts
