"""Roles, by hand."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection

from engine.core.trail import Cause
from engine.directory import roles
from engine.directory.authority import Authority
from engine.directory.commands.acting import act, allow
from engine.directory.effects import Effect
from engine.directory.facts import Facts, Wanted


def create(
    connection: Connection,
    cause: Cause,
    *,
    name: str,
    boundary: str,
    permissions: Sequence[str],
    requires_approval: bool = False,
) -> str:
    """A new role. Returns the id. Needs `realm.roles.write`; giving the role to somebody then needs all it holds. Raises
    Refused (`forbidden`, `validation_failed`, `conflict`)."""

    def command(facts: Facts, held: Authority) -> Effect:
        allow(held, "realm.roles.write")
        return roles.create_role(cause, name, boundary, permissions, requires_approval=requires_approval)

    return str(act(connection, cause, Wanted(), command).result["role_id"])
