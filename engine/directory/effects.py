"""What a verb of the directory gives back, and the statements its rows are for.

A verb is a pure function over facts: it checks, brings the facts up to date, and returns the rows to write (with their audit
and outbox rows). Whether a person or a workflow acts makes no difference to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from db.statements.bulk import delete_from, insert_into, update_rows
from db.tables import Group, GroupMember, GroupRole, Membership, Organization, Role, RoleAssignment, User, table
from engine.core.ledger import Row, Write

DELETE_GROUP_MEMBER = Write(0, delete_from(table(GroupMember), "realm_id", "group_id", "user_id"))
DELETE_ASSIGNMENT = Write(1, delete_from(table(RoleAssignment), "realm_id", "id"))
DELETE_MEMBERSHIP = Write(2, delete_from(table(Membership), "realm_id", "organization_id", "user_id"))
SET_USER_STATE = Write(
    3,
    update_rows(table(User), ["realm_id", "id"], ["state", "suspended_at", "updated_at"], name="set user state"),
)
UPDATE_USER = Write(
    4,
    update_rows(table(User), ["realm_id", "id"], ["email", "display_name", "kind", "updated_at"], name="update user"),
)
SET_EXPIRY = Write(
    5,
    update_rows(table(RoleAssignment), ["realm_id", "id"], ["expires_at", "step_key"], name="set assignment expiry"),
)
DELETE_GROUP_ROLE = Write(7, delete_from(table(GroupRole), "realm_id", "group_id", "role_id"))

INSERT_USER = Write(10, insert_into(table(User), "realm_id", "id", "email", "display_name", "kind"))
INSERT_ORGANIZATION = Write(11, insert_into(table(Organization), "realm_id", "id", "name"))
INSERT_ROLE = Write(
    12,
    insert_into(table(Role), "realm_id", "id", "name", "boundary", "permissions", "requires_approval", "built_in"),
)
INSERT_GROUP = Write(13, insert_into(table(Group), "realm_id", "id", "organization_id", "parent_id", "name"))
INSERT_GROUP_ROLE = Write(14, insert_into(table(GroupRole), "realm_id", "group_id", "role_id"))
INSERT_MEMBERSHIP = Write(20, insert_into(table(Membership), "realm_id", "organization_id", "user_id"))
INSERT_GROUP_MEMBER = Write(
    21,
    insert_into(
        table(GroupMember), "realm_id", "group_id", "user_id", "organization_id", "added_by", "expires_at", "step_key"
    ),
)
INSERT_ASSIGNMENT = Write(
    22,
    insert_into(
        table(RoleAssignment),
        "realm_id",
        "id",
        "role_id",
        "user_id",
        "scope",
        "organization_id",
        "granted_by",
        "expires_at",
        "step_key",
    ),
)


@dataclass(slots=True)
class Effect:
    """What a verb did. `changed` is false when the world was already as asked; then there is nothing to write."""

    changed: bool = False
    rows: list[Row] = field(default_factory=list)
    result: Mapping[str, Any] = field(default_factory=dict)
