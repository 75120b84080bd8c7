"""The permission catalogue, wildcards and built-in roles (lifecycle.md, "Authority")."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

CATALOGUE: dict[str, str] = {
    "realm.workflows.read": "normal",
    "realm.workflows.write": "high",
    "realm.workflows.publish": "privileged",
    "realm.workflows.run": "high",
    "realm.users.read": "normal",
    "realm.users.write": "high",
    "realm.users.suspend": "high",
    "realm.roles.read": "normal",
    "realm.roles.write": "privileged",
    "realm.roles.assign": "privileged",
    "realm.organizations.read": "normal",
    "realm.organizations.write": "high",
    "org.members.read": "normal",
    "org.members.write": "high",
    "org.groups.read": "normal",
    "org.groups.write": "high",
    "org.roles.assign": "privileged",
    "realm.webhooks.read": "normal",
    "realm.webhooks.write": "high",
    "realm.audit.read": "normal",
    "realm.events.write": "high",
    "realm.settings.write": "privileged",
}
"""Permission to risk (`normal`, `high`, `privileged`)."""

WILDCARDS: frozenset[str] = frozenset({"*", "realm.*", "org.*"})


@dataclass(frozen=True, slots=True)
class BuiltIn:
    name: str
    boundary: str
    permissions: tuple[str, ...]


BUILT_IN: tuple[BuiltIn, ...] = (
    BuiltIn("realm-admin", "realm", ("realm.*", "org.*")),
    BuiltIn("realm-auditor", "realm", ("realm.workflows.read", "realm.audit.read")),
    BuiltIn("org-owner", "organization", ("org.*",)),
    BuiltIn(
        "org-admin", "organization", ("org.members.read", "org.members.write", "org.groups.read", "org.groups.write")
    ),
)
"""Roles that every realm has from its beginning."""


def is_permission(value: str) -> bool:
    """Whether `value` may stand in a role."""
    return value in CATALOGUE or value in WILDCARDS


def covers(held: str, wanted: str) -> bool:
    """Whether holding `held` is holding `wanted`. A wildcard is covered only by itself or a wider one."""
    if held in ("*", wanted):
        return True
    return held.endswith(".*") and wanted.startswith(held[:-1])


def any_covers(held: Iterable[str], wanted: str) -> bool:
    """Whether one of the permissions held covers `wanted`."""
    return any(covers(permission, wanted) for permission in held)
