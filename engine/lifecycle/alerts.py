"""Security alerts: what whoever watches over a realm is told beyond the audit of the act itself."""

from __future__ import annotations

from typing import Literal

from engine.core.ledger import Row
from engine.core.trail import Cause, audit, event

Reason = Literal["workflow_disabled", "workflow_deleted"]


def security_alert(cause: Cause, workflow_id: str, reason: Reason) -> list[Row]:
    """A workflow has stopped firing: what it kept in order may not be any more (source: "Residual risks").

    The event is about no user, so no trigger can listen to it.
    """
    target = ("workflow", workflow_id)
    told = {"reason": reason}
    return [
        audit(cause, "security.alert", target, told, category="security"),
        event(cause, "security.alert", None, None, {**told, "workflow_id": workflow_id}),
    ]
