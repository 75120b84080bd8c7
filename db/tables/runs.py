"""Runs, the attempts of their steps, and the approvals they wait for."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, CheckConstraint, ForeignKeyConstraint, Index, UniqueConstraint, text
from sqlmodel import Field, SQLModel

from db.tables.columns import BRIN, DOCUMENT, ID, MOMENT, NOW, PROSE, WORD, WORDS, one_of

RUN_STATES = (
    "pending",
    "running",
    "waiting",
    "awaiting_approval",
    "compensating",
    "succeeded",
    "failed",
    "compensated",
    "compensation_failed",
    "cancelled",
)
UNSUCCESSFUL_STATES = ("failed", "compensated", "compensation_failed", "cancelled")
FINISHED_STATES = ("succeeded", *UNSUCCESSFUL_STATES)


class WorkflowRun(SQLModel, table=True):
    """One execution of one revision for one user.

    `due_at` is when a worker may take the run next: null once it has finished or while its workflow is disabled, and the end
    of the lease while a worker holds it, so that taking over from a dead worker is nothing but taking what is due.
    `fence` grows with every claim; a write must name it and the owner (lifecycle.md, decision 1).
    `interruptions` counts how often in a row the worker died or its transaction failed on this very run (decision 4).
    """

    __tablename__ = "workflow_runs"
    __table_args__ = (
        ForeignKeyConstraint(
            ["realm_id", "workflow_id", "revision"],
            ["workflow_revisions.realm_id", "workflow_revisions.workflow_id", "workflow_revisions.number"],
        ),
        ForeignKeyConstraint(["realm_id", "subject_id"], ["users.realm_id", "users.id"]),
        ForeignKeyConstraint(["realm_id", "publisher_id"], ["users.realm_id", "users.id"]),
        ForeignKeyConstraint(["realm_id", "organization_id"], ["organizations.realm_id", "organizations.id"]),
        UniqueConstraint("realm_id", "workflow_id", "trigger_key", "subject_id", name="workflow_runs_once"),
        CheckConstraint(one_of("state", *RUN_STATES), name="state_is_known"),
        CheckConstraint(one_of("trigger_type", "event", "schedule", "manual"), name="trigger_is_known"),
        CheckConstraint(
            f"({one_of('state', *FINISHED_STATES)}) = (finished_at IS NOT NULL)", name="finished_has_a_moment"
        ),
        CheckConstraint(
            "finished_at IS NULL OR (lease_owner IS NULL AND due_at IS NULL AND NOT paused)",
            name="finished_is_never_due",
        ),
        CheckConstraint("(lease_owner IS NULL) = (lease_expires_at IS NULL)", name="lease_is_whole"),
        CheckConstraint("lease_owner IS NULL OR due_at = lease_expires_at", name="leased_is_due_at_its_end"),
        CheckConstraint("NOT paused OR due_at IS NULL", name="paused_is_never_due"),
        CheckConstraint("finished_at IS NOT NULL OR due_at IS NOT NULL OR paused", name="unfinished_is_due_or_paused"),
        CheckConstraint(
            "step_index >= 0 AND fence >= 0 AND interruptions >= 0 AND depth BETWEEN 0 AND 3", name="counts"
        ),
        Index("workflow_runs_due", "realm_id", "due_at", postgresql_where=text("due_at IS NOT NULL")),
        Index("workflow_runs_leased", "lease_owner", postgresql_where=text("lease_owner IS NOT NULL")),
        Index("workflow_runs_of_workflow", "realm_id", "workflow_id", text("id DESC")),
        Index("workflow_runs_of_subject", "realm_id", "subject_id", text("id DESC")),
        Index("workflow_runs_finished", "finished_at", postgresql_where=text("finished_at IS NOT NULL")),
        Index("workflow_runs_paused", "realm_id", "workflow_id", postgresql_where=text("paused")),
        Index(
            "workflow_runs_unsuccessful",
            "realm_id",
            "state",
            text("id DESC"),
            postgresql_where=text(one_of("state", *UNSUCCESSFUL_STATES)),
        ),
        Index("workflow_runs_by_hand", "realm_id", text("id DESC"), postgresql_where=text("trigger_type = 'manual'")),
        # Runs lie about in the order in which they were made: a few pages of index find the latest, and a write costs nothing.
        Index("workflow_runs_created", "created_at", postgresql_using="brin", postgresql_with=BRIN),
        # Room on the page keeps the updates between claim and release off the indexes; vacuum often, for dead entries at the
        # head of the due index are what slows a claim.
        {
            "postgresql_with": {
                "fillfactor": 70,
                "autovacuum_vacuum_scale_factor": 0.01,
                "autovacuum_vacuum_threshold": 500,
                "autovacuum_vacuum_cost_delay": 0,
                "autovacuum_analyze_scale_factor": 0.02,
            }
        },
    )

    realm_id: str = Field(sa_type=ID, primary_key=True)
    id: str = Field(sa_type=ID, primary_key=True)
    workflow_id: str = Field(sa_type=ID)
    revision: int
    publisher_id: str = Field(sa_type=ID)
    starter_id: str | None = Field(default=None, sa_type=ID)
    subject_id: str = Field(sa_type=ID)
    organization_id: str | None = Field(default=None, sa_type=ID)
    trigger_type: str = Field(sa_type=WORD)
    trigger_key: str = Field(sa_type=ID)
    event_type: str | None = Field(default=None, sa_type=WORD)
    event_id: str | None = Field(default=None, sa_type=ID)
    input: dict[str, Any] = Field(sa_type=DOCUMENT)
    input_version: int
    depth: int = Field(default=0, sa_column_kwargs={"server_default": text("0")})
    state: str = Field(default="pending", sa_type=WORD, sa_column_kwargs={"server_default": "pending"})
    step_index: int = Field(default=0, sa_column_kwargs={"server_default": text("0")})
    context: dict[str, Any] = Field(sa_type=DOCUMENT, sa_column_kwargs={"server_default": text("'{}'::jsonb")})
    error_category: str | None = Field(default=None, sa_type=WORD)
    last_error: str | None = Field(default=None, sa_type=PROSE)
    cancel_requested_at: datetime | None = Field(default=None, sa_type=MOMENT)
    paused: bool = Field(default=False, sa_column_kwargs={"server_default": text("false")})
    created_at: datetime = Field(sa_type=MOMENT, sa_column_kwargs={"server_default": text(NOW)})
    finished_at: datetime | None = Field(default=None, sa_type=MOMENT)
    due_at: datetime | None = Field(default=None, sa_type=MOMENT, sa_column_kwargs={"server_default": text(NOW)})
    lease_owner: str | None = Field(default=None, sa_type=WORD)
    lease_expires_at: datetime | None = Field(default=None, sa_type=MOMENT)
    fence: int = Field(default=0, sa_type=BigInteger, sa_column_kwargs={"server_default": text("0")})
    interruptions: int = Field(default=0, sa_column_kwargs={"server_default": text("0")})


class StepAttempt(SQLModel, table=True):
    """One attempt of one step of one run, kept as it was made; its compensation is recorded on it."""

    __tablename__ = "workflow_step_attempts"
    __table_args__ = (
        ForeignKeyConstraint(
            ["realm_id", "run_id"], ["workflow_runs.realm_id", "workflow_runs.id"], ondelete="CASCADE"
        ),
        CheckConstraint(one_of("state", "started", "succeeded", "failed"), name="state_is_known"),
        CheckConstraint("(state = 'started') = (finished_at IS NULL)", name="started_is_not_finished"),
        CheckConstraint("(state = 'failed') = (error_category IS NOT NULL)", name="failed_has_a_category"),
        CheckConstraint(
            one_of("compensation_strategy", "none", "undo", "notify_endpoint", "impossible"), name="strategy_is_known"
        ),
        CheckConstraint(
            one_of("compensation_state", "pending", "done", "not_needed", "impossible", "failed"),
            name="compensation_is_known",
        ),
        CheckConstraint("attempt >= 1 AND step_index >= 0 AND compensation_attempts BETWEEN 0 AND 5", name="counts"),
        Index(
            "workflow_step_attempts_one_success",
            "realm_id",
            "run_id",
            "step_index",
            unique=True,
            postgresql_where=text("state = 'succeeded'"),
        ),
    )

    realm_id: str = Field(sa_type=ID, primary_key=True)
    run_id: str = Field(sa_type=ID, primary_key=True)
    step_index: int = Field(primary_key=True)
    attempt: int = Field(primary_key=True)
    id: str = Field(sa_type=ID)
    step_id: str = Field(sa_type=WORD)
    step_type: str = Field(sa_type=WORD)
    state: str = Field(sa_type=WORD)
    idempotency_key: str = Field(sa_type=ID)
    input: dict[str, Any] = Field(sa_type=DOCUMENT)
    input_version: str = Field(sa_type=WORD)
    result: dict[str, Any] | None = Field(default=None, sa_type=DOCUMENT)
    error_category: str | None = Field(default=None, sa_type=WORD)
    error_message: str | None = Field(default=None, sa_type=PROSE)
    max_attempts: int
    backoff_ms: int = Field(sa_type=BigInteger)
    compensation_strategy: str = Field(default="none", sa_type=WORD, sa_column_kwargs={"server_default": "none"})
    compensation_state: str = Field(
        default="not_needed", sa_type=WORD, sa_column_kwargs={"server_default": "not_needed"}
    )
    compensation_attempts: int = Field(default=0, sa_column_kwargs={"server_default": text("0")})
    compensation_started_at: datetime | None = Field(default=None, sa_type=MOMENT)
    """Set while a compensation call is out: a crash leaves it, and the next claim counts that try as interrupted."""
    compensation_result: dict[str, Any] | None = Field(default=None, sa_type=DOCUMENT)
    started_at: datetime = Field(sa_type=MOMENT, sa_column_kwargs={"server_default": text(NOW)})
    finished_at: datetime | None = Field(default=None, sa_type=MOMENT)


class Approval(SQLModel, table=True):
    """A decision that a run waits for. The one who decides is among the approvers, eligible, and never the subject."""

    __tablename__ = "workflow_approvals"
    __table_args__ = (
        ForeignKeyConstraint(
            ["realm_id", "run_id"], ["workflow_runs.realm_id", "workflow_runs.id"], ondelete="CASCADE"
        ),
        ForeignKeyConstraint(["realm_id", "decided_by"], ["users.realm_id", "users.id"]),
        UniqueConstraint("realm_id", "run_id", "step_index", name="workflow_approvals_once"),
        CheckConstraint(
            one_of("state", "pending", "approved", "rejected", "expired", "cancelled"), name="state_is_known"
        ),
        CheckConstraint("(state IN ('approved', 'rejected')) = (decided_by IS NOT NULL)", name="decided_by_someone"),
        CheckConstraint("(state = 'pending') = (ended_at IS NULL)", name="ended_has_a_moment"),
        CheckConstraint("decided_by IS DISTINCT FROM subject_id", name="never_the_subject"),
        CheckConstraint("decided_by IS NULL OR decided_by = ANY (approvers)", name="decided_by_an_approver"),
        CheckConstraint("decided_by IS NULL OR ended_at < expires_at", name="decided_in_time"),
        Index(
            "workflow_approvals_pending",
            "approvers",
            postgresql_using="gin",
            postgresql_where=text("state = 'pending'"),
        ),
        Index(
            "workflow_approvals_not_approved",
            "realm_id",
            "state",
            text("id DESC"),
            postgresql_where=text("state <> 'approved'"),
        ),
    )

    realm_id: str = Field(sa_type=ID, primary_key=True)
    id: str = Field(sa_type=ID, primary_key=True)
    run_id: str = Field(sa_type=ID)
    workflow_id: str = Field(sa_type=ID)
    step_index: int
    step_id: str = Field(sa_type=WORD)
    subject_id: str = Field(sa_type=ID)
    organization_id: str | None = Field(default=None, sa_type=ID)
    approvers: list[str] = Field(sa_type=WORDS)
    state: str = Field(default="pending", sa_type=WORD, sa_column_kwargs={"server_default": "pending"})
    expires_at: datetime = Field(sa_type=MOMENT)
    created_at: datetime = Field(sa_type=MOMENT, sa_column_kwargs={"server_default": text(NOW)})
    decided_by: str | None = Field(default=None, sa_type=ID)
    ended_at: datetime | None = Field(default=None, sa_type=MOMENT)
    comment: str | None = Field(default=None, sa_type=PROSE)
