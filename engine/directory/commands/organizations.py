"""Organizations and their members, by hand."""

from __future__ import annotations

from sqlalchemy import Connection

from engine.core.errors import Refused
from engine.core.trail import Cause
from engine.directory import organizations
from engine.directory.authority import Authority
from engine.directory.commands.acting import act, allow
from engine.directory.effects import Effect
from engine.directory.facts import Facts, Wanted


def create(connection: Connection, cause: Cause, *, name: str) -> str:
    """A new organization. Returns the id. Needs `realm.organizations.write`. Raises Refused (`forbidden`, `conflict`)."""

    def command(facts: Facts, held: Authority) -> Effect:
        allow(held, "realm.organizations.write")
        return organizations.create_organization(cause, name)

    return str(act(connection, cause, Wanted(), command).result["organization_id"])


def add_member(connection: Connection, cause: Cause, organization_id: str, user_id: str) -> bool:
    """Make a user a member. Returns whether the user was not one before. Needs `org.members.write` there. Raises Refused
    (`forbidden`, `not_found`, `conflict`)."""
    user = (cause.realm_id, user_id)

    def command(facts: Facts, held: Authority) -> Effect:
        allow(held, "org.members.write", organization_id)
        return organizations.add_membership(facts, cause, user, organization_id)

    wanted = Wanted(changing={user}, organizations={(cause.realm_id, organization_id)})
    return act(connection, cause, wanted, command).changed


def remove_member(connection: Connection, cause: Cause, organization_id: str, user_id: str) -> None:
    """End a membership, with its groups and organization roles. Needs `org.members.write` there. Raises Refused
    (`forbidden`, `not_found`; `conflict` for the last owner)."""
    user = (cause.realm_id, user_id)

    def command(facts: Facts, held: Authority) -> Effect:
        allow(held, "org.members.write", organization_id)
        if not facts.is_member(user, organization_id):
            raise Refused("not_found", "this membership does not exist")
        return organizations.remove_membership(facts, cause, user, organization_id)

    act(connection, cause, Wanted(changing={user}, ownership={(cause.realm_id, organization_id, None)}), command)
