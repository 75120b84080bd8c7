"""Users, by hand."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection

from db.statements.reads_users import user as user_row
from engine.core.errors import Refused
from engine.core.trail import Cause
from engine.directory import users
from engine.directory.authority import Authority
from engine.directory.commands.acting import act, allow
from engine.directory.effects import Effect
from engine.directory.facts import Facts, Wanted


def create(connection: Connection, cause: Cause, *, email: str, display_name: str, kind: str = "member") -> str:
    """A new, active user. Returns the id. Needs `realm.users.write`. Raises Refused (`forbidden`, `conflict`)."""

    def command(facts: Facts, held: Authority) -> Effect:
        allow(held, "realm.users.write")
        return users.create_user(cause, email, display_name, kind)

    return str(act(connection, cause, Wanted(), command).result["user_id"])


def update(connection: Connection, cause: Cause, user_id: str, **changes: Any) -> None:
    """Change `email`, `display_name` or `kind`. Needs `realm.users.write`. Raises Refused (`forbidden`, `not_found`,
    `conflict`)."""
    key = (cause.realm_id, user_id)

    def command(facts: Facts, held: Authority) -> Effect:
        allow(held, "realm.users.write")
        row = user_row(connection, cause.realm_id, user_id)
        if row is None:
            raise Refused("not_found", "this user does not exist")
        before = {"email": row.email, "display_name": row.display_name, "kind": row.kind}
        return users.update_user(facts, cause, key, before, changes)

    act(connection, cause, Wanted(changing={key}), command)


def suspend(connection: Connection, cause: Cause, user_id: str) -> bool:
    """Suspend an account. Returns whether it was active. Needs `realm.users.suspend`. Raises Refused (`forbidden`,
    `not_found`)."""
    key = (cause.realm_id, user_id)

    def command(facts: Facts, held: Authority) -> Effect:
        allow(held, "realm.users.suspend")
        return users.suspend(facts, cause, key)

    return act(connection, cause, Wanted(changing={key}), command).changed


def reactivate(connection: Connection, cause: Cause, user_id: str) -> bool:
    """Make a suspended account active again. Returns whether it was suspended. Needs `realm.users.suspend`. Raises Refused
    (`forbidden`, `not_found`)."""
    key = (cause.realm_id, user_id)

    def command(facts: Facts, held: Authority) -> Effect:
        allow(held, "realm.users.suspend")
        return users.reactivate(facts, cause, key)

    return act(connection, cause, Wanted(changing={key}), command).changed
