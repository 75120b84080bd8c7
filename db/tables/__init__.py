"""The tables, one aggregate a file. What must be true of a row is a constraint of its table.

columns             the column types all share
realms              tenants, their policy and the wording of their notices
users               people; the row is the lock of what they hold
organizations       organizations and memberships
roles               roles and role assignments
groups              groups, the roles they grant, their members
subscriptions       webhook destinations and their secrets
workflows           workflows, revisions, and the published triggers
runs                runs, step attempts, approvals
messages            notices queued for SMTP
outbox              events of the directory, before and after dispatch
audit               the audit trail
service_principals  machines and the roles they hold
idempotency         keys of callers, so that a request made twice is done once
shifts              who hosts the engine's loops at the moment
"""

from __future__ import annotations

from sqlalchemy import Table
from sqlmodel import SQLModel

from db.tables.audit import AuditEvent
from db.tables.groups import Group, GroupMember, GroupRole
from db.tables.idempotency import IdempotencyKey
from db.tables.messages import Message
from db.tables.organizations import Membership, Organization
from db.tables.outbox import OutboxEvent
from db.tables.realms import Realm
from db.tables.roles import Role, RoleAssignment
from db.tables.runs import Approval, StepAttempt, WorkflowRun
from db.tables.service_principals import ServicePrincipal, ServicePrincipalRole
from db.tables.shifts import Shift
from db.tables.subscriptions import WebhookSubscription
from db.tables.users import User
from db.tables.workflows import EventTrigger, ScheduleTrigger, Workflow, WorkflowRevision

__all__ = [
    "Approval",
    "AuditEvent",
    "EventTrigger",
    "Group",
    "GroupMember",
    "GroupRole",
    "IdempotencyKey",
    "Membership",
    "Message",
    "Organization",
    "OutboxEvent",
    "Realm",
    "Role",
    "RoleAssignment",
    "ScheduleTrigger",
    "ServicePrincipal",
    "ServicePrincipalRole",
    "Shift",
    "StepAttempt",
    "User",
    "WebhookSubscription",
    "Workflow",
    "WorkflowRevision",
    "WorkflowRun",
    "table",
]


def table(model: type[SQLModel]) -> Table:
    """The SQLAlchemy table of a model: statements are written on its columns (`runs.c.due_at`)."""
    found = SQLModel.metadata.tables[str(model.__tablename__)]
    assert isinstance(found, Table)
    return found
