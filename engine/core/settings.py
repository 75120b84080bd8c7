"""What an operator may set about the workers and the world outside. Every name is read from the environment as TENURE_<NAME>."""

from __future__ import annotations

from datetime import timedelta

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from db.settings import DatabaseSettings, Duration

HEARTBEATS_PER_LEASE = 3
"""A lease is renewed this many times before it would run out: two renewals may fail without losing it."""

CALL_MARGIN = timedelta(seconds=2)
"""What a call may need beyond its own deadline to be recorded, within the lease."""


class WorkerSettings(BaseSettings):
    """How runs are claimed and advanced (source: "Execution and idempotency")."""

    model_config = SettingsConfigDict(
        env_prefix="TENURE_", env_ignore_empty=True, extra="ignore", frozen=True, hide_input_in_errors=True
    )

    lease_duration: Duration = Field(default=timedelta(seconds=30), ge=timedelta(seconds=1), le=timedelta(minutes=10))
    """How long a claim holds without a renewal."""
    batch_size: int = Field(default=50, ge=1, le=50)
    """Runs a pass claims at most. The source allows no more than 50."""
    tenant_batch_share: int = Field(default=40, ge=1, le=50)
    """Runs of one realm a claim takes at most (TEN-018)."""
    max_transitions: int = Field(default=25, ge=1, le=25)
    """Steps a claimed run may advance before it yields."""
    poll_interval: Duration = Field(default=timedelta(seconds=1), gt=timedelta(0), le=timedelta(seconds=60))
    """The safety net under LISTEN/NOTIFY: how long an idle worker waits at most."""
    calls_in_flight: int = Field(default=256, ge=1, le=1000)
    """Endpoint calls a worker has open at once."""


class DeliverySettings(BaseSettings):
    """What may leave the building, and how long it may take (source: "Step call contract"; lifecycle.md, decision 8)."""

    model_config = SettingsConfigDict(
        env_prefix="TENURE_", env_ignore_empty=True, extra="ignore", frozen=True, hide_input_in_errors=True
    )

    webhook_timeout: Duration = Field(
        default=timedelta(seconds=10), ge=timedelta(milliseconds=100), le=timedelta(seconds=30)
    )
    """Upper bound of one call: connect, TLS, headers and body together."""
    allow_private_egress: bool = False
    """Whether a subscription with allow_private_network may reach a private address at all."""


class MailSettings(BaseSettings):
    """The relay that takes our messages. Without a host nothing is sent and messages stay queued."""

    model_config = SettingsConfigDict(
        env_prefix="TENURE_SMTP_", env_ignore_empty=True, extra="ignore", frozen=True, hide_input_in_errors=True
    )

    host: str | None = None
    port: int = Field(default=25, ge=1, le=65535)
    starttls: bool = False
    username: str | None = None
    password: str | None = Field(default=None, repr=False)
    sender: str = "tenure@localhost"
    timeout: Duration = Field(default=timedelta(seconds=10), ge=timedelta(seconds=1), le=timedelta(minutes=1))


LONGEST_LOCK_WAIT = timedelta(seconds=1)
"""How long a worker waits for a row that somebody else has. Its other runs wait with it."""


def short_transactions(database: DatabaseSettings, workers: WorkerSettings) -> DatabaseSettings:
    """The settings of a worker's connections: a worker that is stopped in a transaction must not keep its row locks for longer
    than its leases, nor may one locked row hold up a whole batch."""
    share = workers.lease_duration / HEARTBEATS_PER_LEASE
    return database.model_copy(
        update={
            "lock_timeout": min(database.lock_timeout, LONGEST_LOCK_WAIT),
            "idle_in_transaction_timeout": min(database.idle_in_transaction_timeout, share),
        }
    )


class EngineSettings(BaseModel):
    """The settings of a worker together, with the rules that hold between them. Each part reads the environment by itself."""

    model_config = ConfigDict(frozen=True, hide_input_in_errors=True)

    workers: WorkerSettings = Field(default_factory=WorkerSettings)
    delivery: DeliverySettings = Field(default_factory=DeliverySettings)
    mail: MailSettings = Field(default_factory=MailSettings)

    @model_validator(mode="after")
    def _calls_fit_in_the_lease(self) -> EngineSettings:
        """A call that outlives its lease would be made twice at once (lifecycle.md, decision 8)."""
        if self.delivery.webhook_timeout + CALL_MARGIN > self.workers.lease_duration:
            raise ValueError(
                f"TENURE_WEBHOOK_TIMEOUT ({self.delivery.webhook_timeout}) plus {CALL_MARGIN} must not exceed "
                f"TENURE_LEASE_DURATION ({self.workers.lease_duration})"
            )
        return self
