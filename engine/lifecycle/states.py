"""The state tables of runs, approvals, revisions and workflows. What is not a row here does not happen."""

from __future__ import annotations

from engine.core.machine import StateTable

RUN = StateTable(
    "run",
    (
        ("pending", "advance", "running"),
        ("pending", "wait", "waiting"),
        ("pending", "ask", "awaiting_approval"),
        ("pending", "finish", "succeeded"),
        ("pending", "fail", "compensating"),
        ("running", "advance", "running"),
        ("running", "wait", "waiting"),
        ("running", "ask", "awaiting_approval"),
        ("running", "finish", "succeeded"),
        ("running", "fail", "compensating"),
        ("waiting", "advance", "running"),
        ("waiting", "wait", "waiting"),
        ("waiting", "finish", "succeeded"),
        ("waiting", "fail", "compensating"),
        ("awaiting_approval", "advance", "running"),
        ("awaiting_approval", "ask", "awaiting_approval"),
        ("awaiting_approval", "finish", "succeeded"),
        ("awaiting_approval", "fail", "compensating"),
        ("compensating", "undo", "compensating"),
        ("compensating", "settle_nothing", "failed"),
        ("compensating", "settle_undone", "compensated"),
        ("compensating", "settle_stuck", "compensation_failed"),
        ("compensating", "settle_cancelled", "cancelled"),
    ),
)

APPROVAL = StateTable(
    "approval",
    (
        ("pending", "approve", "approved"),
        ("pending", "reject", "rejected"),
        ("pending", "expire", "expired"),
        ("pending", "cancel", "cancelled"),
    ),
)

REVISION = StateTable(
    "revision",
    (
        ("draft", "approve", "approved"),
        ("draft", "reject", "rejected"),
        ("draft", "publish", "published"),
        ("approved", "reject", "rejected"),
        ("approved", "publish", "published"),
        ("published", "supersede", "superseded"),
        ("superseded", "roll_back", "published"),
    ),
)

WORKFLOW = StateTable(
    "workflow",
    (
        ("draft", "publish", "active"),
        ("draft", "delete", "deleted"),
        ("active", "publish", "active"),
        ("active", "roll_back", "active"),
        ("active", "disable", "disabled"),
        ("active", "delete", "deleted"),
        ("disabled", "publish", "disabled"),
        ("disabled", "roll_back", "disabled"),
        ("disabled", "enable", "active"),
        ("disabled", "delete", "deleted"),
    ),
)
