"""The first tables, and what the application may do with them.

The application's role owns nothing. It cannot change or delete an audit row (lifecycle.md, decision 10), nor the definition
of a revision.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


GRANTS = (
    "GRANT USAGE ON SCHEMA public TO tenure_app",
    "GRANT SELECT, INSERT, UPDATE ON realms, users, organizations, workflows, workflow_runs TO tenure_app",
    "GRANT SELECT, INSERT, UPDATE ON workflow_step_attempts, workflow_approvals, webhook_subscriptions, shifts TO tenure_app",
    "GRANT SELECT, INSERT, UPDATE ON messages, outbox_events, schedule_triggers, roles, groups TO tenure_app",
    "GRANT SELECT, INSERT, UPDATE, DELETE ON memberships, role_assignments, group_roles, group_members TO tenure_app",
    "GRANT SELECT, INSERT, DELETE ON event_triggers TO tenure_app",
    "GRANT DELETE ON roles, groups, workflows, workflow_runs, schedule_triggers, messages, outbox_events, shifts TO tenure_app",
    "GRANT SELECT, INSERT, DELETE ON workflow_revisions TO tenure_app",
    "GRANT UPDATE (status, decided_by, decided_at, published_by, published_at) ON workflow_revisions TO tenure_app",
    "GRANT SELECT, INSERT ON audit_events TO tenure_app",
    "GRANT SELECT ON alembic_version TO tenure_app",
)


def upgrade() -> None:
    op.create_table(
        "realms",
        sa.Column("id", sa.Text(collation="C"), nullable=False),
        sa.Column("name", sa.Text(collation="C"), nullable=False),
        sa.Column("workflow_publish_approval", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("notice_subject", sa.Text(), nullable=True),
        sa.Column("notice_body", sa.Text(), nullable=True),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.CheckConstraint("(notice_subject IS NULL) = (notice_body IS NULL)", name="notice_is_whole"),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("name"),
    )
    op.create_table(
        "shifts",
        sa.Column("id", sa.Text(collation="C"), nullable=False),
        sa.Column("deployment", sa.Text(collation="C"), nullable=False),
        sa.Column("owner", sa.Text(collation="C"), nullable=False),
        sa.Column("flow_run_id", sa.Text(collation="C"), nullable=True),
        sa.Column(
            "started_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.Column("last_pass_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("passes", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("ended_how", sa.Text(collation="C"), nullable=True),
        sa.CheckConstraint(
            "ended_how IN ('relieved', 'capped', 'finished', 'stopped', 'cancelled', 'crashed', 'lost')",
            name="ended_how_is_known",
        ),
        sa.CheckConstraint("(ended_at IS NULL) = (ended_how IS NULL)", name="ended_is_whole"),
        sa.CheckConstraint("passes >= 0", name="passes_are_counted"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(
        "shifts_ended", "shifts", ["ended_at"], unique=False, postgresql_where=sa.text("ended_at IS NOT NULL")
    )
    op.create_index(
        "shifts_of_flow_run",
        "shifts",
        ["flow_run_id"],
        unique=False,
        postgresql_where=sa.text("flow_run_id IS NOT NULL"),
    )
    op.create_index(
        "shifts_open",
        "shifts",
        ["deployment", "started_at"],
        unique=False,
        postgresql_where=sa.text("ended_at IS NULL"),
    )
    op.create_table(
        "audit_events",
        sa.Column("realm_id", sa.Text(collation="C"), nullable=False),
        sa.Column("position", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("id", sa.Text(collation="C"), nullable=False),
        sa.Column("type", sa.Text(collation="C"), nullable=False),
        sa.Column("category", sa.Text(collation="C"), nullable=False),
        sa.Column("actor_type", sa.Text(collation="C"), nullable=False),
        sa.Column("actor_id", sa.Text(collation="C"), nullable=True),
        sa.Column("target_type", sa.Text(collation="C"), nullable=False),
        sa.Column("target_id", sa.Text(collation="C"), nullable=False),
        sa.Column("request_id", sa.Text(collation="C"), nullable=True),
        sa.Column("correlation_id", sa.Text(collation="C"), nullable=True),
        sa.Column("details", postgresql.JSONB(none_as_null=True, astext_type=sa.Text()), nullable=False),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.ForeignKeyConstraint(
            ["realm_id"],
            ["realms.id"],
        ),
        sa.PrimaryKeyConstraint("realm_id", "position"),
    )
    op.create_index(
        "audit_events_of_correlation",
        "audit_events",
        ["realm_id", "correlation_id", "position"],
        unique=False,
        postgresql_where=sa.text("correlation_id IS NOT NULL"),
    )
    op.create_index("audit_events_of_target", "audit_events", ["realm_id", "target_id", "position"], unique=False)
    op.create_table(
        "organizations",
        sa.Column("realm_id", sa.Text(collation="C"), nullable=False),
        sa.Column("id", sa.Text(collation="C"), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(collation="C"), server_default="active", nullable=False),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.CheckConstraint("state IN ('active', 'archived')", name="state_is_known"),
        sa.ForeignKeyConstraint(
            ["realm_id"],
            ["realms.id"],
        ),
        sa.PrimaryKeyConstraint("realm_id", "id"),
        sa.UniqueConstraint("realm_id", "name"),
    )
    op.create_table(
        "outbox_events",
        sa.Column("realm_id", sa.Text(collation="C"), nullable=False),
        sa.Column("id", sa.Text(collation="C"), nullable=False),
        sa.Column("position", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("type", sa.Text(collation="C"), nullable=False),
        sa.Column("event_version", sa.Integer(), server_default=sa.text("1"), nullable=False),
        sa.Column("user_id", sa.Text(collation="C"), nullable=True),
        sa.Column("organization_id", sa.Text(collation="C"), nullable=True),
        sa.Column("payload", postgresql.JSONB(none_as_null=True, astext_type=sa.Text()), nullable=False),
        sa.Column("correlation_id", sa.Text(collation="C"), nullable=True),
        sa.Column("caused_by_workflow", sa.Text(collation="C"), nullable=True),
        sa.Column("depth", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.Column("due_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False),
        sa.Column("dispatched_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("set_aside_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("attempts", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("last_error", sa.Text(), nullable=True),
        sa.CheckConstraint("dispatched_at IS NULL OR set_aside_at IS NULL", name="one_end"),
        sa.ForeignKeyConstraint(
            ["realm_id"],
            ["realms.id"],
        ),
        sa.PrimaryKeyConstraint("realm_id", "id"),
        postgresql_with={
            "fillfactor": 80,
            "autovacuum_vacuum_scale_factor": 0.01,
            "autovacuum_vacuum_threshold": 500,
            "autovacuum_vacuum_cost_delay": 0,
        },
    )
    op.create_index(
        "outbox_events_dispatched",
        "outbox_events",
        ["dispatched_at"],
        unique=False,
        postgresql_where=sa.text("dispatched_at IS NOT NULL"),
    )
    op.create_index(
        "outbox_events_undispatched",
        "outbox_events",
        ["due_at", "position"],
        unique=False,
        postgresql_where=sa.text("dispatched_at IS NULL AND set_aside_at IS NULL"),
    )
    op.create_table(
        "roles",
        sa.Column("realm_id", sa.Text(collation="C"), nullable=False),
        sa.Column("id", sa.Text(collation="C"), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("boundary", sa.Text(collation="C"), nullable=False),
        sa.Column("permissions", postgresql.ARRAY(sa.Text(collation="C")), nullable=False),
        sa.Column("requires_approval", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("built_in", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.CheckConstraint("boundary IN ('realm', 'organization')", name="boundary_is_known"),
        sa.ForeignKeyConstraint(
            ["realm_id"],
            ["realms.id"],
        ),
        sa.PrimaryKeyConstraint("realm_id", "id"),
        sa.UniqueConstraint("realm_id", "name"),
    )
    op.create_table(
        "users",
        sa.Column("realm_id", sa.Text(collation="C"), nullable=False),
        sa.Column("id", sa.Text(collation="C"), nullable=False),
        sa.Column("email", sa.Text(), nullable=False),
        sa.Column("display_name", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(collation="C"), server_default="member", nullable=False),
        sa.Column("state", sa.Text(collation="C"), server_default="active", nullable=False),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.Column(
            "updated_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.Column("last_active_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("suspended_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("(state = 'suspended') = (suspended_at IS NOT NULL)", name="suspended_has_a_moment"),
        sa.CheckConstraint("kind IN ('member', 'guest')", name="kind_is_known"),
        sa.CheckConstraint("state IN ('active', 'suspended', 'deleted')", name="state_is_known"),
        sa.ForeignKeyConstraint(
            ["realm_id"],
            ["realms.id"],
        ),
        sa.PrimaryKeyConstraint("realm_id", "id"),
    )
    op.create_index(
        "users_email",
        "users",
        ["realm_id", sa.literal_column("lower(email)")],
        unique=True,
        postgresql_where=sa.text("state <> 'deleted'"),
    )
    op.create_table(
        "groups",
        sa.Column("realm_id", sa.Text(collation="C"), nullable=False),
        sa.Column("id", sa.Text(collation="C"), nullable=False),
        sa.Column("organization_id", sa.Text(collation="C"), nullable=False),
        sa.Column("parent_id", sa.Text(collation="C"), nullable=True),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.CheckConstraint("parent_id IS DISTINCT FROM id", name="not_its_own_parent"),
        sa.ForeignKeyConstraint(
            ["realm_id", "organization_id", "parent_id"],
            ["groups.realm_id", "groups.organization_id", "groups.id"],
        ),
        sa.ForeignKeyConstraint(
            ["realm_id", "organization_id"],
            ["organizations.realm_id", "organizations.id"],
        ),
        sa.PrimaryKeyConstraint("realm_id", "id"),
        sa.UniqueConstraint("realm_id", "organization_id", "id"),
        sa.UniqueConstraint("realm_id", "organization_id", "name"),
    )
    op.create_index(
        "groups_of_parent",
        "groups",
        ["realm_id", "parent_id"],
        unique=False,
        postgresql_where=sa.text("parent_id IS NOT NULL"),
    )
    op.create_table(
        "memberships",
        sa.Column("realm_id", sa.Text(collation="C"), nullable=False),
        sa.Column("organization_id", sa.Text(collation="C"), nullable=False),
        sa.Column("user_id", sa.Text(collation="C"), nullable=False),
        sa.Column("joined_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False),
        sa.ForeignKeyConstraint(
            ["realm_id", "organization_id"],
            ["organizations.realm_id", "organizations.id"],
        ),
        sa.ForeignKeyConstraint(
            ["realm_id", "user_id"],
            ["users.realm_id", "users.id"],
        ),
        sa.PrimaryKeyConstraint("realm_id", "organization_id", "user_id"),
    )
    op.create_index("memberships_of_user", "memberships", ["realm_id", "user_id"], unique=False)
    op.create_table(
        "webhook_subscriptions",
        sa.Column("realm_id", sa.Text(collation="C"), nullable=False),
        sa.Column("id", sa.Text(collation="C"), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("organization_id", sa.Text(collation="C"), nullable=True),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(collation="C"), server_default="active", nullable=False),
        sa.Column("allow_private_network", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("secret", sa.LargeBinary(), nullable=False),
        sa.Column("previous_secret", sa.LargeBinary(), nullable=True),
        sa.Column("previous_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.CheckConstraint("state IN ('active', 'paused', 'disabled', 'deleted')", name="state_is_known"),
        sa.CheckConstraint("(previous_secret IS NULL) = (previous_until IS NULL)", name="overlap_is_whole"),
        sa.ForeignKeyConstraint(
            ["realm_id", "organization_id"],
            ["organizations.realm_id", "organizations.id"],
        ),
        sa.ForeignKeyConstraint(
            ["realm_id"],
            ["realms.id"],
        ),
        sa.PrimaryKeyConstraint("realm_id", "id"),
    )
    op.create_index(
        "webhook_subscriptions_newest",
        "webhook_subscriptions",
        ["realm_id", sa.literal_column("id DESC")],
        unique=False,
        postgresql_where=sa.text("state <> 'deleted'"),
    )
    op.create_table(
        "workflows",
        sa.Column("realm_id", sa.Text(collation="C"), nullable=False),
        sa.Column("id", sa.Text(collation="C"), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=True),
        sa.Column("owner_id", sa.Text(collation="C"), nullable=True),
        sa.Column("state", sa.Text(collation="C"), server_default="draft", nullable=False),
        sa.Column("requires_approval", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("last_revision", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("published_revision", sa.Integer(), nullable=True),
        sa.Column("publisher_id", sa.Text(collation="C"), nullable=True),
        sa.Column("first_published_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("plugin_id", sa.Text(collation="C"), nullable=True),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.Column(
            "updated_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.CheckConstraint("state <> 'active' OR published_revision IS NOT NULL", name="active_is_published"),
        sa.CheckConstraint("state IN ('draft', 'active', 'disabled')", name="state_is_known"),
        sa.CheckConstraint(
            "(published_revision IS NULL) = (publisher_id IS NULL) AND (published_revision IS NULL OR first_published_at IS NOT NULL)",
            name="published_has_a_publisher",
        ),
        sa.CheckConstraint("char_length(description) <= 500", name="description_length"),
        sa.CheckConstraint("char_length(name) BETWEEN 1 AND 100", name="name_length"),
        sa.ForeignKeyConstraint(
            ["realm_id", "owner_id"],
            ["users.realm_id", "users.id"],
        ),
        sa.ForeignKeyConstraint(
            ["realm_id", "publisher_id"],
            ["users.realm_id", "users.id"],
        ),
        sa.ForeignKeyConstraint(
            ["realm_id"],
            ["realms.id"],
        ),
        sa.PrimaryKeyConstraint("realm_id", "id"),
        sa.UniqueConstraint("realm_id", "name"),
    )
    op.create_table(
        "event_triggers",
        sa.Column("realm_id", sa.Text(collation="C"), nullable=False),
        sa.Column("workflow_id", sa.Text(collation="C"), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("event_type", sa.Text(collation="C"), nullable=False),
        sa.Column("organization_id", sa.Text(collation="C"), nullable=True),
        sa.ForeignKeyConstraint(
            ["realm_id", "organization_id"],
            ["organizations.realm_id", "organizations.id"],
        ),
        sa.ForeignKeyConstraint(
            ["realm_id", "workflow_id"], ["workflows.realm_id", "workflows.id"], ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("realm_id", "workflow_id", "ordinal", "event_type"),
    )
    op.create_index(
        "event_triggers_match", "event_triggers", ["realm_id", "event_type", "organization_id"], unique=False
    )
    op.create_table(
        "group_members",
        sa.Column("realm_id", sa.Text(collation="C"), nullable=False),
        sa.Column("group_id", sa.Text(collation="C"), nullable=False),
        sa.Column("user_id", sa.Text(collation="C"), nullable=False),
        sa.Column("organization_id", sa.Text(collation="C"), nullable=False),
        sa.Column("joined_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False),
        sa.Column("added_by", sa.Text(collation="C"), nullable=True),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("step_key", sa.Text(collation="C"), nullable=True),
        sa.ForeignKeyConstraint(
            ["realm_id", "organization_id", "group_id"],
            ["groups.realm_id", "groups.organization_id", "groups.id"],
        ),
        sa.ForeignKeyConstraint(
            ["realm_id", "organization_id", "user_id"],
            ["memberships.realm_id", "memberships.organization_id", "memberships.user_id"],
        ),
        sa.PrimaryKeyConstraint("realm_id", "group_id", "user_id"),
    )
    op.create_index(
        "group_members_expiring",
        "group_members",
        ["expires_at"],
        unique=False,
        postgresql_where=sa.text("expires_at IS NOT NULL"),
    )
    op.create_index("group_members_of_user", "group_members", ["realm_id", "user_id"], unique=False)
    op.create_index(
        "group_members_step_key",
        "group_members",
        ["realm_id", "step_key"],
        unique=True,
        postgresql_where=sa.text("step_key IS NOT NULL"),
    )
    op.create_table(
        "group_roles",
        sa.Column("realm_id", sa.Text(collation="C"), nullable=False),
        sa.Column("group_id", sa.Text(collation="C"), nullable=False),
        sa.Column("role_id", sa.Text(collation="C"), nullable=False),
        sa.ForeignKeyConstraint(["realm_id", "group_id"], ["groups.realm_id", "groups.id"], ondelete="CASCADE"),
        sa.ForeignKeyConstraint(
            ["realm_id", "role_id"],
            ["roles.realm_id", "roles.id"],
        ),
        sa.PrimaryKeyConstraint("realm_id", "group_id", "role_id"),
    )
    op.create_index("group_roles_of_role", "group_roles", ["realm_id", "role_id"], unique=False)
    op.create_table(
        "messages",
        sa.Column("realm_id", sa.Text(collation="C"), nullable=False),
        sa.Column("id", sa.Text(collation="C"), nullable=False),
        sa.Column("run_id", sa.Text(collation="C"), nullable=False),
        sa.Column("workflow_id", sa.Text(collation="C"), nullable=False),
        sa.Column("step_key", sa.Text(collation="C"), nullable=False),
        sa.Column("recipient_id", sa.Text(collation="C"), nullable=False),
        sa.Column("notice", sa.Text(collation="C"), nullable=False),
        sa.Column("state", sa.Text(collation="C"), server_default="queued", nullable=False),
        sa.Column("attempts", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("fence", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("last_error", sa.Text(), nullable=True),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.Column("due_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("(state = 'queued') = (due_at IS NOT NULL)", name="queued_is_due"),
        sa.CheckConstraint("(state = 'queued') = (ended_at IS NULL)", name="ended_has_a_moment"),
        sa.CheckConstraint("state IN ('queued', 'sent', 'failed')", name="state_is_known"),
        sa.ForeignKeyConstraint(
            ["realm_id", "recipient_id"],
            ["users.realm_id", "users.id"],
        ),
        sa.ForeignKeyConstraint(
            ["realm_id", "workflow_id"], ["workflows.realm_id", "workflows.id"], ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("realm_id", "id"),
        sa.UniqueConstraint("realm_id", "step_key", "recipient_id", name="messages_once"),
    )
    op.create_index(
        "messages_due", "messages", ["due_at"], unique=False, postgresql_where=sa.text("due_at IS NOT NULL")
    )
    op.create_index(
        "messages_ended", "messages", ["ended_at"], unique=False, postgresql_where=sa.text("ended_at IS NOT NULL")
    )
    op.create_table(
        "role_assignments",
        sa.Column("realm_id", sa.Text(collation="C"), nullable=False),
        sa.Column("id", sa.Text(collation="C"), nullable=False),
        sa.Column("role_id", sa.Text(collation="C"), nullable=False),
        sa.Column("user_id", sa.Text(collation="C"), nullable=False),
        sa.Column("scope", sa.Text(collation="C"), nullable=False),
        sa.Column("organization_id", sa.Text(collation="C"), nullable=True),
        sa.Column(
            "granted_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.Column("granted_by", sa.Text(collation="C"), nullable=True),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("step_key", sa.Text(collation="C"), nullable=True),
        sa.CheckConstraint(
            "(scope = 'realm' AND organization_id IS NULL) OR (scope = 'organization' AND organization_id IS NOT NULL)",
            name="scope_has_its_organization",
        ),
        sa.ForeignKeyConstraint(
            ["realm_id", "organization_id", "user_id"],
            ["memberships.realm_id", "memberships.organization_id", "memberships.user_id"],
        ),
        sa.ForeignKeyConstraint(
            ["realm_id", "role_id"],
            ["roles.realm_id", "roles.id"],
        ),
        sa.ForeignKeyConstraint(
            ["realm_id", "user_id"],
            ["users.realm_id", "users.id"],
        ),
        sa.PrimaryKeyConstraint("realm_id", "id"),
    )
    op.create_index(
        "role_assignments_expiring",
        "role_assignments",
        ["expires_at"],
        unique=False,
        postgresql_where=sa.text("expires_at IS NOT NULL"),
    )
    op.create_index(
        "role_assignments_of_organization",
        "role_assignments",
        ["realm_id", "organization_id", "role_id"],
        unique=False,
        postgresql_where=sa.text("organization_id IS NOT NULL"),
    )
    op.create_index("role_assignments_of_role", "role_assignments", ["realm_id", "role_id", "user_id"], unique=False)
    op.create_index(
        "role_assignments_once",
        "role_assignments",
        ["realm_id", "user_id", "role_id", "organization_id"],
        unique=True,
        postgresql_nulls_not_distinct=True,
    )
    op.create_index(
        "role_assignments_step_key",
        "role_assignments",
        ["realm_id", "step_key"],
        unique=True,
        postgresql_where=sa.text("step_key IS NOT NULL"),
    )
    op.create_table(
        "schedule_triggers",
        sa.Column("realm_id", sa.Text(collation="C"), nullable=False),
        sa.Column("workflow_id", sa.Text(collation="C"), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("every_seconds", sa.BigInteger(), nullable=False),
        sa.Column("selector", postgresql.JSONB(none_as_null=True, astext_type=sa.Text()), nullable=False),
        sa.Column("next_slot_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("slot_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("slot_cursor", sa.Text(collation="C"), nullable=True),
        sa.Column("slot_started", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("slot_missed", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.CheckConstraint("every_seconds BETWEEN 3600 AND 31536000", name="every_within_bounds"),
        sa.CheckConstraint("slot_cursor IS NULL OR slot_at IS NOT NULL", name="cursor_has_a_slot"),
        sa.ForeignKeyConstraint(
            ["realm_id", "workflow_id"], ["workflows.realm_id", "workflows.id"], ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("realm_id", "workflow_id", "ordinal"),
    )
    op.create_index("schedule_triggers_due", "schedule_triggers", ["next_slot_at"], unique=False)
    op.create_index(
        "schedule_triggers_filling",
        "schedule_triggers",
        ["slot_at"],
        unique=False,
        postgresql_where=sa.text("slot_at IS NOT NULL"),
    )
    op.create_table(
        "workflow_revisions",
        sa.Column("realm_id", sa.Text(collation="C"), nullable=False),
        sa.Column("workflow_id", sa.Text(collation="C"), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("id", sa.Text(collation="C"), nullable=False),
        sa.Column("status", sa.Text(collation="C"), server_default="draft", nullable=False),
        sa.Column("definition", sa.Text(), nullable=False),
        sa.Column("definition_hash", sa.Text(collation="C"), nullable=False),
        sa.Column("author_id", sa.Text(collation="C"), nullable=False),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.Column("decided_by", sa.Text(collation="C"), nullable=True),
        sa.Column("decided_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("published_by", sa.Text(collation="C"), nullable=True),
        sa.Column("published_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("definition_hash ~ '^[0-9a-f]{64}$'", name="hash_is_sha256"),
        sa.CheckConstraint(
            "status IN ('draft', 'approved', 'rejected', 'published', 'superseded')", name="status_is_known"
        ),
        sa.CheckConstraint("number >= 1", name="numbered_from_one"),
        sa.ForeignKeyConstraint(
            ["realm_id", "author_id"],
            ["users.realm_id", "users.id"],
        ),
        sa.ForeignKeyConstraint(
            ["realm_id", "workflow_id"], ["workflows.realm_id", "workflows.id"], ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("realm_id", "workflow_id", "number"),
    )
    op.create_index(
        "workflow_revisions_one_published",
        "workflow_revisions",
        ["realm_id", "workflow_id"],
        unique=True,
        postgresql_where=sa.text("status = 'published'"),
    )
    op.create_table(
        "workflow_runs",
        sa.Column("realm_id", sa.Text(collation="C"), nullable=False),
        sa.Column("id", sa.Text(collation="C"), nullable=False),
        sa.Column("workflow_id", sa.Text(collation="C"), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("publisher_id", sa.Text(collation="C"), nullable=False),
        sa.Column("starter_id", sa.Text(collation="C"), nullable=True),
        sa.Column("subject_id", sa.Text(collation="C"), nullable=False),
        sa.Column("organization_id", sa.Text(collation="C"), nullable=True),
        sa.Column("trigger_type", sa.Text(collation="C"), nullable=False),
        sa.Column("trigger_key", sa.Text(collation="C"), nullable=False),
        sa.Column("event_type", sa.Text(collation="C"), nullable=True),
        sa.Column("event_id", sa.Text(collation="C"), nullable=True),
        sa.Column("input", postgresql.JSONB(none_as_null=True, astext_type=sa.Text()), nullable=False),
        sa.Column("input_version", sa.Integer(), nullable=False),
        sa.Column("depth", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("state", sa.Text(collation="C"), server_default="pending", nullable=False),
        sa.Column("step_index", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column(
            "context",
            postgresql.JSONB(none_as_null=True, astext_type=sa.Text()),
            server_default=sa.text("'{}'::jsonb"),
            nullable=False,
        ),
        sa.Column("error_category", sa.Text(collation="C"), nullable=True),
        sa.Column("last_error", sa.Text(), nullable=True),
        sa.Column("cancel_requested_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("paused", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("due_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=True),
        sa.Column("lease_owner", sa.Text(collation="C"), nullable=True),
        sa.Column("lease_expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("fence", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("interruptions", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.CheckConstraint(
            "(state IN ('succeeded', 'failed', 'compensated', 'compensation_failed', 'cancelled')) = (finished_at IS NOT NULL)",
            name="finished_has_a_moment",
        ),
        sa.CheckConstraint(
            "state IN ('pending', 'running', 'waiting', 'awaiting_approval', 'compensating', 'succeeded', 'failed', 'compensated', 'compensation_failed', 'cancelled')",
            name="state_is_known",
        ),
        sa.CheckConstraint("trigger_type IN ('event', 'schedule', 'manual')", name="trigger_is_known"),
        sa.CheckConstraint("(lease_owner IS NULL) = (lease_expires_at IS NULL)", name="lease_is_whole"),
        sa.CheckConstraint("NOT paused OR due_at IS NULL", name="paused_is_never_due"),
        sa.CheckConstraint(
            "finished_at IS NULL OR (lease_owner IS NULL AND due_at IS NULL AND NOT paused)",
            name="finished_is_never_due",
        ),
        sa.CheckConstraint("lease_owner IS NULL OR due_at = lease_expires_at", name="leased_is_due_at_its_end"),
        sa.CheckConstraint(
            "step_index >= 0 AND fence >= 0 AND interruptions >= 0 AND depth BETWEEN 0 AND 3", name="counts"
        ),
        sa.ForeignKeyConstraint(
            ["realm_id", "organization_id"],
            ["organizations.realm_id", "organizations.id"],
        ),
        sa.ForeignKeyConstraint(
            ["realm_id", "publisher_id"],
            ["users.realm_id", "users.id"],
        ),
        sa.ForeignKeyConstraint(
            ["realm_id", "subject_id"],
            ["users.realm_id", "users.id"],
        ),
        sa.ForeignKeyConstraint(
            ["realm_id", "workflow_id", "revision"],
            ["workflow_revisions.realm_id", "workflow_revisions.workflow_id", "workflow_revisions.number"],
        ),
        sa.PrimaryKeyConstraint("realm_id", "id"),
        sa.UniqueConstraint("realm_id", "workflow_id", "trigger_key", "subject_id", name="workflow_runs_once"),
        postgresql_with={
            "fillfactor": 70,
            "autovacuum_vacuum_scale_factor": 0.01,
            "autovacuum_vacuum_threshold": 500,
            "autovacuum_vacuum_cost_delay": 0,
            "autovacuum_analyze_scale_factor": 0.02,
        },
    )
    op.create_index(
        "workflow_runs_due",
        "workflow_runs",
        ["realm_id", "due_at"],
        unique=False,
        postgresql_where=sa.text("due_at IS NOT NULL"),
    )
    op.create_index(
        "workflow_runs_finished",
        "workflow_runs",
        ["finished_at"],
        unique=False,
        postgresql_where=sa.text("finished_at IS NOT NULL"),
    )
    op.create_index(
        "workflow_runs_leased",
        "workflow_runs",
        ["lease_owner"],
        unique=False,
        postgresql_where=sa.text("lease_owner IS NOT NULL"),
    )
    op.create_index(
        "workflow_runs_of_subject",
        "workflow_runs",
        ["realm_id", "subject_id", sa.literal_column("id DESC")],
        unique=False,
    )
    op.create_index(
        "workflow_runs_of_workflow",
        "workflow_runs",
        ["realm_id", "workflow_id", sa.literal_column("id DESC")],
        unique=False,
    )
    op.create_index(
        "workflow_runs_paused",
        "workflow_runs",
        ["realm_id", "workflow_id"],
        unique=False,
        postgresql_where=sa.text("paused"),
    )
    op.create_table(
        "workflow_approvals",
        sa.Column("realm_id", sa.Text(collation="C"), nullable=False),
        sa.Column("id", sa.Text(collation="C"), nullable=False),
        sa.Column("run_id", sa.Text(collation="C"), nullable=False),
        sa.Column("workflow_id", sa.Text(collation="C"), nullable=False),
        sa.Column("step_index", sa.Integer(), nullable=False),
        sa.Column("step_id", sa.Text(collation="C"), nullable=False),
        sa.Column("subject_id", sa.Text(collation="C"), nullable=False),
        sa.Column("organization_id", sa.Text(collation="C"), nullable=True),
        sa.Column("approvers", postgresql.ARRAY(sa.Text(collation="C")), nullable=False),
        sa.Column("state", sa.Text(collation="C"), server_default="pending", nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.Column("decided_by", sa.Text(collation="C"), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("comment", sa.Text(), nullable=True),
        sa.CheckConstraint("(state = 'pending') = (ended_at IS NULL)", name="ended_has_a_moment"),
        sa.CheckConstraint("(state IN ('approved', 'rejected')) = (decided_by IS NOT NULL)", name="decided_by_someone"),
        sa.CheckConstraint(
            "state IN ('pending', 'approved', 'rejected', 'expired', 'cancelled')", name="state_is_known"
        ),
        sa.CheckConstraint("decided_by IS DISTINCT FROM subject_id", name="never_the_subject"),
        sa.CheckConstraint("decided_by IS NULL OR decided_by = ANY (approvers)", name="decided_by_an_approver"),
        sa.CheckConstraint("decided_by IS NULL OR ended_at < expires_at", name="decided_in_time"),
        sa.ForeignKeyConstraint(
            ["realm_id", "decided_by"],
            ["users.realm_id", "users.id"],
        ),
        sa.ForeignKeyConstraint(
            ["realm_id", "run_id"], ["workflow_runs.realm_id", "workflow_runs.id"], ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("realm_id", "id"),
        sa.UniqueConstraint("realm_id", "run_id", "step_index", name="workflow_approvals_once"),
    )
    op.create_index(
        "workflow_approvals_pending",
        "workflow_approvals",
        ["approvers"],
        unique=False,
        postgresql_using="gin",
        postgresql_where=sa.text("state = 'pending'"),
    )
    op.create_table(
        "workflow_step_attempts",
        sa.Column("realm_id", sa.Text(collation="C"), nullable=False),
        sa.Column("run_id", sa.Text(collation="C"), nullable=False),
        sa.Column("step_index", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("id", sa.Text(collation="C"), nullable=False),
        sa.Column("step_id", sa.Text(collation="C"), nullable=False),
        sa.Column("step_type", sa.Text(collation="C"), nullable=False),
        sa.Column("state", sa.Text(collation="C"), nullable=False),
        sa.Column("idempotency_key", sa.Text(collation="C"), nullable=False),
        sa.Column("input", postgresql.JSONB(none_as_null=True, astext_type=sa.Text()), nullable=False),
        sa.Column("input_version", sa.Text(collation="C"), nullable=False),
        sa.Column("result", postgresql.JSONB(none_as_null=True, astext_type=sa.Text()), nullable=True),
        sa.Column("error_category", sa.Text(collation="C"), nullable=True),
        sa.Column("error_message", sa.Text(), nullable=True),
        sa.Column("max_attempts", sa.Integer(), nullable=False),
        sa.Column("backoff_ms", sa.BigInteger(), nullable=False),
        sa.Column("compensation_strategy", sa.Text(collation="C"), server_default="none", nullable=False),
        sa.Column("compensation_state", sa.Text(collation="C"), server_default="not_needed", nullable=False),
        sa.Column("compensation_attempts", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("compensation_started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("compensation_result", postgresql.JSONB(none_as_null=True, astext_type=sa.Text()), nullable=True),
        sa.Column(
            "started_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("(state = 'failed') = (error_category IS NOT NULL)", name="failed_has_a_category"),
        sa.CheckConstraint("(state = 'started') = (finished_at IS NULL)", name="started_is_not_finished"),
        sa.CheckConstraint(
            "compensation_state IN ('pending', 'done', 'not_needed', 'impossible', 'failed')",
            name="compensation_is_known",
        ),
        sa.CheckConstraint(
            "compensation_strategy IN ('none', 'undo', 'notify_endpoint', 'impossible')", name="strategy_is_known"
        ),
        sa.CheckConstraint("state IN ('started', 'succeeded', 'failed')", name="state_is_known"),
        sa.CheckConstraint("attempt >= 1 AND step_index >= 0 AND compensation_attempts BETWEEN 0 AND 5", name="counts"),
        sa.ForeignKeyConstraint(
            ["realm_id", "run_id"], ["workflow_runs.realm_id", "workflow_runs.id"], ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("realm_id", "run_id", "step_index", "attempt"),
    )
    op.create_index(
        "workflow_step_attempts_one_success",
        "workflow_step_attempts",
        ["realm_id", "run_id", "step_index"],
        unique=True,
        postgresql_where=sa.text("state = 'succeeded'"),
    )
    for statement in GRANTS:
        op.execute(statement)
