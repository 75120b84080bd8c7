"""The table of the API's routes, and a body for each that takes one. A route that is added without a body here fails the
tests that go through all routes."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from api.app import PREFIX, create_app
from api.openapi import declarations
from tests.definitions import Json, definition, step
from tests.everything import Everything
from tests.factories import unique

_app = create_app()

DOCUMENT: Json = _app.openapi()
"""The API's own document."""


@dataclass(frozen=True)
class Route:
    """One route. `path` is within the realm, with its parameters in braces."""

    operation: str
    method: str
    path: str
    declares: str
    takes_body: bool
    takes_key: bool = False
    """Whether it needs an Idempotency-Key."""

    def __str__(self) -> str:
        return self.operation

    @property
    def parameters(self) -> list[str]:
        """What its path names."""
        return re.findall(r"{(\w+)}", self.path)

    @property
    def headers(self) -> dict[str, str]:
        """What it needs beside a token."""
        return {"Idempotency-Key": unique("key")} if self.takes_key else {}

    def filled(self, ids: Everything) -> str:
        """The path with these ids."""
        return self.path.format(**asdict(ids))


def _routes() -> list[Route]:
    operations = DOCUMENT["paths"]
    found = []
    for method, path, (declared,) in declarations(_app):
        operation = operations[path][method.lower()]
        if path.startswith(PREFIX):
            name, body = operation["operationId"], "requestBody" in operation
            key = any(
                each["name"] == "Idempotency-Key" and each["required"] for each in operation.get("parameters", ())
            )
            found.append(Route(name, method, path.removeprefix(PREFIX), declared.declares, body, key))
    return found


ROUTES = _routes()
"""All routes within a realm."""

BODIES: dict[str, Callable[[Everything], Json]] = {
    "create_workflow": lambda ids: {"name": unique("workflow"), "owner_id": ids.user_id},
    "validate_definition": lambda ids: {"definition": _definition(ids)},
    "change_workflow": lambda ids: {"description": "changed"},
    "start_run": lambda ids: {"subject_id": ids.user_id, "organization_id": ids.organization_id},
    "roll_back_workflow": lambda ids: {"revision": 1},
    "stage_revision": lambda ids: {"definition": _definition(ids)},
    "approve": lambda ids: {"comment": "yes"},
    "reject": lambda ids: {"comment": "no"},
    "create_user": lambda ids: {"email": f"{unique('u')}@example.org", "display_name": "Someone"},
    "change_user": lambda ids: {"display_name": "Somebody"},
    "create_organization": lambda ids: {"name": unique("organization")},
    "add_member": lambda ids: {"user_id": ids.approver_id},
    "create_group": lambda ids: {
        "organization_id": ids.organization_id,
        "name": unique("group"),
        "parent_id": ids.group_id,
    },
    "add_group_member": lambda ids: {"user_id": ids.user_id},
    "add_group_role": lambda ids: {"role_id": ids.role_id},
    "create_role": lambda ids: {"name": unique("role"), "boundary": "organization", "permissions": []},
    "assign_role": lambda ids: {
        "user_id": ids.user_id,
        "role_id": ids.role_id,
        "organization_id": ids.organization_id,
    },
    "change_role_assignment": lambda ids: {"expires_at": "2099-01-01T00:00:00Z"},
    "create_service_principal": lambda ids: {"name": unique("principal"), "role_ids": []},
    "change_service_principal": lambda ids: {"name": unique("principal")},
    "change_settings": lambda ids: {"extensions": {"workflow_publish_approval": False}},
    "receive_event": lambda ids: {
        "type": "group.membership.added",
        "user_id": ids.user_id,
        "organization_id": ids.organization_id,
        "group_id": ids.group_id,
    },
    "create_subscription": lambda ids: {"name": unique("hook"), "url": "https://hooks.example.org/a"},
}
"""A body that is taken, for each operation that takes one."""


PERMISSIONS: dict[str, str] = {
    "list_workflows": "realm.workflows.read",
    "create_workflow": "realm.workflows.write",
    "validate_definition": "realm.workflows.write",
    "get_workflow": "realm.workflows.read",
    "change_workflow": "realm.workflows.write",
    "start_run": "realm.workflows.run",
    "roll_back_workflow": "realm.workflows.publish",
    "disable_workflow": "realm.workflows.publish",
    "enable_workflow": "realm.workflows.publish",
    "delete_workflow": "realm.workflows.write",
    "list_revisions": "realm.workflows.read",
    "stage_revision": "realm.workflows.write",
    "get_revision": "realm.workflows.read",
    "approve_revision": "realm.workflows.publish",
    "reject_revision": "realm.workflows.publish",
    "publish_revision": "realm.workflows.publish",
    "get_diagnostics": "realm.workflows.read",
    "list_runs": "realm.workflows.read",
    "get_run": "realm.workflows.read",
    "cancel_run": "realm.workflows.run",
    "list_approvals": "realm.workflows.read",
    "list_my_approvals": "account",
    "approve": "account",
    "reject": "account",
    "list_users": "realm.users.read",
    "create_user": "realm.users.write",
    "get_user": "realm.users.read",
    "change_user": "realm.users.write",
    "suspend_user": "realm.users.suspend",
    "reactivate_user": "realm.users.suspend",
    "list_organizations": "realm.organizations.read",
    "create_organization": "realm.organizations.write",
    "get_organization": "realm.organizations.read",
    "list_members": "org.members.read",
    "add_member": "org.members.write",
    "remove_member": "org.members.write",
    "list_groups": "org.groups.read",
    "create_group": "org.groups.write",
    "get_group": "org.groups.read",
    "list_group_members": "org.groups.read",
    "add_group_member": "org.groups.write",
    "remove_group_member": "org.groups.write",
    "list_group_roles": "org.groups.read",
    "add_group_role": "org.groups.write",
    "remove_group_role": "org.groups.write",
    "list_roles": "realm.roles.read",
    "create_role": "realm.roles.write",
    "get_role": "realm.roles.read",
    "list_role_assignments": "realm.roles.read",
    "assign_role": "realm.roles.assign or org.roles.assign",
    "get_role_assignment": "realm.roles.read",
    "change_role_assignment": "realm.roles.assign or org.roles.assign",
    "revoke_role": "realm.roles.assign or org.roles.assign",
    "list_service_principals": "realm.users.read",
    "create_service_principal": "realm.users.write",
    "get_service_principal": "realm.users.read",
    "change_service_principal": "realm.users.write",
    "disable_service_principal": "realm.users.write",
    "enable_service_principal": "realm.users.write",
    "get_settings": "realm.settings.write",
    "change_settings": "realm.settings.write",
    "list_subscriptions": "realm.webhooks.read",
    "create_subscription": "realm.webhooks.write",
    "get_subscription": "realm.webhooks.read",
    "delete_subscription": "realm.webhooks.write",
    "rotate_secret": "realm.webhooks.write",
    "pause_subscription": "realm.webhooks.write",
    "resume_subscription": "realm.webhooks.write",
    "disable_subscription": "realm.webhooks.write",
    "list_permissions": "realm.roles.read",
    "list_audit_events": "realm.audit.read",
    "receive_event": "realm.events.write",
    "list_outbox_events": "realm.audit.read",
    "get_outbox_event": "realm.audit.read",
    "dispatch_outbox_event": "realm.events.write",
}
"""Who may do what, written down a second time: the tests that go through all routes ask each for what it declares."""


def body_of(route: Route, ids: Everything) -> Any:
    """The body to send; `...` for none."""
    return BODIES[route.operation](ids) if route.takes_body else ...


def _definition(ids: Everything) -> Json:
    return definition(
        step("assign_role", id="a", role_id=ids.role_id, organization_id=ids.organization_id),
        step("add_to_group", id="b", group_id=ids.group_id, organization_id=ids.organization_id),
        step("approval", id="c", approvers=[ids.approver_id]),
        step("call_webhook", id="d", subscription_id=ids.subscription_id),
    )
