"""What a `call_webhook` step sends: body and headers of contract version 1 (api/contracts/step-call.v1.json).

Identifiers only. Every attempt of a step carries the same idempotency key and its own message id; a compensation
carries `<key>.compensate`, and the id `<attempt id>c` for each of its tries (lifecycle.md, decision 7).
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from engine.egress.destination import Destination
from engine.egress.http import OutgoingCall
from engine.egress.signing import Secret, signed_headers

COMPENSATION_TIMEOUT = timedelta(seconds=5)
"""The deadline of a compensation call, fixed by the contract."""

USER_AGENT = "ProudAuth-Workflows/1"
"""The name receivers know the caller by: part of the contract."""

_PREFIXES = {
    "realm_id": "rlm",
    "organization_id": "org",
    "workflow_id": "wfl",
    "run_id": "wrn",
    "subject_id": "usr",
    "attempt_id": "wsa",
    "event_id": "obx",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCall:
    """One call. `attempt` counts attempts of the step or, for `compensate`, tries of the compensation."""

    action: Literal["execute", "compensate"]
    realm_id: str
    workflow_id: str
    revision: int
    run_id: str
    step_id: str
    attempt_id: str
    attempt: int
    subject_id: str
    trigger_type: Literal["event", "schedule", "manual"]
    sent_at: datetime
    organization_id: str | None = None
    event_type: str | None = None
    event_id: str | None = None

    def __post_init__(self) -> None:
        for member, prefix in _PREFIXES.items():
            value = getattr(self, member)
            if value is not None and not re.fullmatch(rf"{prefix}_[0-9a-z]{{26}}", value):
                raise ValueError(f"{member} of a step call is not an id")
        if self.attempt < 1 or self.revision < 1:
            raise ValueError("attempts and revisions count from 1")
        if self.sent_at.utcoffset() != timedelta(0):
            raise ValueError("a step call is sent at a moment in aware UTC")

    @property
    def idempotency_key(self) -> str:
        """What receivers deduplicate by."""
        key = f"{self.run_id}.{self.step_id}"
        return f"{key}.compensate" if self.action == "compensate" else key

    @property
    def message_id(self) -> str:
        """The Webhook-Id."""
        return f"{self.attempt_id}c" if self.action == "compensate" else self.attempt_id

    def body(self) -> bytes:
        """The contract's members as compact JSON, without those that the run does not have."""
        trigger = {"type": self.trigger_type, "event_type": self.event_type, "event_id": self.event_id}
        members: dict[str, Any] = {
            "type": "workflow.step",
            "contract_version": 1,
            "action": self.action,
            "realm_id": self.realm_id,
            "organization_id": self.organization_id,
            "workflow_id": self.workflow_id,
            "revision": self.revision,
            "run_id": self.run_id,
            "step_id": self.step_id,
            "attempt": self.attempt,
            "idempotency_key": self.idempotency_key,
            "subject": {"type": "user", "id": self.subject_id},
            "trigger": _present(trigger),
            "sent_at": self.sent_at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        return json.dumps(_present(members), separators=(",", ":"), ensure_ascii=False).encode()

    def headers(self, secrets: Sequence[Secret]) -> dict[str, str]:
        """The headers of `body()`, signed with each of `secrets` (two while a rotated one overlaps) at `sent_at`."""
        return {
            "Content-Type": "application/json",
            **signed_headers(self.message_id, self.body(), secrets, self.sent_at),
            "Idempotency-Key": self.idempotency_key,
            "User-Agent": USER_AGENT,
        }

    def outgoing(
        self, destination: Destination, secrets: Sequence[Secret], *, allow_private: bool = False
    ) -> OutgoingCall:
        """The call as `http.post` takes it."""
        return OutgoingCall(destination, self.headers(secrets), self.body(), allow_private)


def _present(members: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}
