"""Service principals, idempotency keys, workflows and webhook subscriptions that are deleted and yet remembered, and indexes for
what is read."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

GRANTS = (
    "GRANT SELECT, INSERT, UPDATE ON service_principals TO tenure_app",
    "GRANT SELECT, INSERT, DELETE ON service_principal_roles, idempotency_keys TO tenure_app",
    "GRANT UPDATE (created_at) ON idempotency_keys TO tenure_app",  # nobody changes it: a row is locked before it is cleaned
)

RULES = (
    ("workflows", "state_is_known", "state IN ('draft', 'active', 'disabled', 'deleted')"),
    ("workflows", "deleted_has_a_moment", "(state = 'deleted') = (deleted_at IS NOT NULL)"),
    (
        "webhook_subscriptions",
        "deleted_keeps_no_secret",
        "CASE state WHEN 'deleted' THEN num_nonnulls(url, secret, previous_secret) = 0 ELSE num_nulls(url, secret) = 0 END",
    ),
    ("workflow_runs", "unfinished_is_due_or_paused", "finished_at IS NOT NULL OR due_at IS NOT NULL OR paused"),
)

WIPE_DELETED = """
UPDATE webhook_subscriptions SET url = NULL, secret = NULL, previous_secret = NULL, previous_until = NULL
WHERE state = 'deleted'
"""


def upgrade() -> None:
    op.create_table(
        "idempotency_keys",
        sa.Column("realm_id", sa.Text(collation="C"), nullable=False),
        sa.Column("actor_id", sa.Text(collation="C"), nullable=False),
        sa.Column("operation", sa.Text(collation="C"), nullable=False),
        sa.Column("key", sa.Text(collation="C"), nullable=False),
        sa.Column("request_hash", sa.Text(collation="C"), nullable=False),
        sa.Column("result_id", sa.Text(collation="C"), nullable=False),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.CheckConstraint("request_hash ~ '^[0-9a-f]{64}$'", name="hash_is_sha256"),
        sa.ForeignKeyConstraint(["realm_id"], ["realms.id"]),
        sa.PrimaryKeyConstraint("realm_id", "actor_id", "operation", "key"),
    )
    op.create_index("idempotency_keys_age", "idempotency_keys", ["created_at"], unique=False)
    op.create_table(
        "service_principals",
        sa.Column("realm_id", sa.Text(collation="C"), nullable=False),
        sa.Column("id", sa.Text(collation="C"), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(collation="C"), server_default="active", nullable=False),
        sa.Column("created_by", sa.Text(collation="C"), nullable=True),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.CheckConstraint("state IN ('active', 'disabled')", name="state_is_known"),
        sa.ForeignKeyConstraint(["realm_id"], ["realms.id"]),
        sa.PrimaryKeyConstraint("realm_id", "id"),
        sa.UniqueConstraint("realm_id", "name"),
    )
    op.create_table(
        "service_principal_roles",
        sa.Column("realm_id", sa.Text(collation="C"), nullable=False),
        sa.Column("service_principal_id", sa.Text(collation="C"), nullable=False),
        sa.Column("role_id", sa.Text(collation="C"), nullable=False),
        sa.ForeignKeyConstraint(["realm_id", "role_id"], ["roles.realm_id", "roles.id"]),
        sa.ForeignKeyConstraint(
            ["realm_id", "service_principal_id"],
            ["service_principals.realm_id", "service_principals.id"],
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("realm_id", "service_principal_id", "role_id"),
    )
    op.create_index("service_principal_roles_of_role", "service_principal_roles", ["realm_id", "role_id"], unique=False)
    op.create_index(
        "outbox_events_of_user",
        "outbox_events",
        ["realm_id", "user_id", "id"],
        unique=False,
        postgresql_where=sa.text("user_id IS NOT NULL"),
    )
    op.create_index(
        "outbox_events_set_aside",
        "outbox_events",
        ["realm_id", "id"],
        unique=False,
        postgresql_where=sa.text("set_aside_at IS NOT NULL"),
    )
    op.create_index(
        "workflow_runs_unsuccessful",
        "workflow_runs",
        ["realm_id", "state", sa.literal_column("id DESC")],
        unique=False,
        postgresql_where=sa.text("state IN ('failed', 'compensated', 'compensation_failed', 'cancelled')"),
    )
    op.create_index(
        "workflow_runs_by_hand",
        "workflow_runs",
        ["realm_id", sa.literal_column("id DESC")],
        unique=False,
        postgresql_where=sa.text("trigger_type = 'manual'"),
    )
    op.create_index(
        "workflow_approvals_not_approved",
        "workflow_approvals",
        ["realm_id", "state", sa.literal_column("id DESC")],
        unique=False,
        postgresql_where=sa.text("state <> 'approved'"),
    )
    op.create_index(
        "webhook_subscriptions_disabled",
        "webhook_subscriptions",
        ["realm_id"],
        unique=False,
        postgresql_where=sa.text("state = 'disabled'"),
    )
    for table in ("workflow_runs", "audit_events"):
        op.create_index(
            f"{table}_created",
            table,
            ["created_at"],
            unique=False,
            postgresql_using="brin",
            postgresql_with={"pages_per_range": 32, "autosummarize": "on"},
        )
    op.add_column("workflows", sa.Column("deleted_at", sa.DateTime(timezone=True), nullable=True))
    op.add_column("workflows", sa.Column("releasing", sa.Boolean(), server_default=sa.text("false"), nullable=False))
    op.create_index(
        "workflows_releasing",
        "workflows",
        ["realm_id", "id"],
        unique=False,
        postgresql_where=sa.text("releasing"),
    )
    op.drop_constraint("workflows_realm_id_name_key", "workflows", type_="unique")
    op.create_index(
        "workflows_deleted",
        "workflows",
        ["deleted_at"],
        unique=False,
        postgresql_where=sa.text("deleted_at IS NOT NULL"),
    )
    op.create_index(
        "workflows_name",
        "workflows",
        ["realm_id", "name"],
        unique=True,
        postgresql_where=sa.text("state <> 'deleted'"),
    )
    op.drop_constraint("state_is_known", "workflows", type_="check")
    for column in ("url", "secret"):
        op.alter_column("webhook_subscriptions", column, nullable=True)
    op.execute(WIPE_DELETED)
    for table, name, rule in RULES:
        op.create_check_constraint(name, table, rule)
    for statement in GRANTS:
        op.execute(statement)
