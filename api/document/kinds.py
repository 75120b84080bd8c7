"""Of which kind the ids in answers are: their models have them as plain text."""

from __future__ import annotations

from collections.abc import Mapping

from engine.core.ids import SUFFIX, Prefix

_SUFFIX = "01jbh0ybgaravg3xcq0zdp2eg0"


def id_of(prefix: Prefix) -> str:
    """The id that stands for all of its kind."""
    return f"{prefix}_{_SUFFIX}"


def pattern_of(prefix: Prefix) -> str:
    """As the models of requests have it."""
    return f"^{prefix}_{SUFFIX}$"


OWN_IDS: Mapping[str, Prefix] = {
    "Approval": Prefix.APPROVAL,
    "AuditEvent": Prefix.AUDIT_EVENT,
    "DueRun": Prefix.RUN,
    "Group": Prefix.GROUP,
    "MyApproval": Prefix.APPROVAL,
    "Organization": Prefix.ORGANIZATION,
    "OutboxEvent": Prefix.OUTBOX_EVENT,
    "RevisionSummary": Prefix.REVISION,
    "Role": Prefix.ROLE,
    "RoleAssignment": Prefix.ROLE_ASSIGNMENT,
    "Run": Prefix.RUN,
    "ServicePrincipal": Prefix.SERVICE_PRINCIPAL,
    "StepAttempt": Prefix.ATTEMPT,
    "User": Prefix.USER,
    "WebhookSubscription": Prefix.SUBSCRIPTION,
    "Workflow": Prefix.WORKFLOW,
}
"""Whose `id` is of which kind."""

SAME_AS: Mapping[str, str] = {
    "Revision": "RevisionSummary",
    "RunDetail": "Run",
    "SubscriptionWithSecret": "WebhookSubscription",
}
"""Components that have the members of another and more."""

IDS: Mapping[str, Prefix] = {
    "approval_id": Prefix.APPROVAL,
    "assignment_id": Prefix.ROLE_ASSIGNMENT,
    "author_id": Prefix.USER,
    "event_id": Prefix.OUTBOX_EVENT,
    "group_id": Prefix.GROUP,
    "organization_id": Prefix.ORGANIZATION,
    "owner_id": Prefix.USER,
    "parent_id": Prefix.GROUP,
    "principal_id": Prefix.SERVICE_PRINCIPAL,
    "publisher_id": Prefix.USER,
    "realm_id": Prefix.REALM,
    "role_id": Prefix.ROLE,
    "run_id": Prefix.RUN,
    "starter_id": Prefix.USER,
    "subject_id": Prefix.USER,
    "subscription_id": Prefix.SUBSCRIPTION,
    "user_id": Prefix.USER,
    "workflow_id": Prefix.WORKFLOW,
    # by whom
    "added_by": Prefix.USER,
    "created_by": Prefix.USER,
    "decided_by": Prefix.USER,
    "granted_by": Prefix.USER,
    "published_by": Prefix.USER,
}
"""Members that are ids of one kind."""
