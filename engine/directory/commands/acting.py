"""The frame of every command: the actor's authority is loaded with the facts, under the locks that the effect needs."""

from __future__ import annotations

from collections.abc import Callable

from psycopg import errors
from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError

from db.statements.facts import lock_roles
from db.statements.service_principals import lock_principal, roles_of
from engine.core.errors import Refused
from engine.core.trail import Cause
from engine.directory.acts import perform
from engine.directory.authority import NOBODY, Authority, authority_of
from engine.directory.effects import Effect
from engine.directory.facts import Facts, Key, Wanted
from engine.directory.load import load_facts

Command = Callable[[Facts, Authority], Effect]
"""Checks the authority it is given, then calls a verb."""


def act(connection: Connection, cause: Cause, wanted: Wanted, command: Command) -> Effect:
    """Let a person act on the directory. Writes what `command` wants, in the caller's transaction.

    What gives the actor authority is locked, so it still counts when the effect commits. Raises what `command` raises, and
    Refused("conflict") for a name or address that something else has; the transaction must then be rolled back.
    """
    actor = actor_of(cause)
    wanted.authority_of.add(actor)
    try:
        return perform(connection, wanted, lambda facts: command(facts, authority_of(facts, actor)))
    except IntegrityError as error:
        raise _taken(error) from error


def require_still(connection: Connection, cause: Cause, permission: str, organization_id: str | None = None) -> None:
    """Raise Refused("forbidden") unless the actor holds the permission, and go on holding it until the caller commits.

    For commands outside the directory: call it behind the command, for users are locked after runs and workflows.
    """
    allow(authority_now(connection, cause), permission, organization_id)


def authority_now(connection: Connection, cause: Cause) -> Authority:
    """What the actor may do, be it a user or a service principal, under locks that keep it so until the caller commits."""
    if cause.actor_type == "service_principal" and cause.actor_id is not None:
        return _authority_of_principal(connection, cause.realm_id, cause.actor_id)
    actor = actor_of(cause)
    return authority_of(load_facts(connection, Wanted(authority_of={actor})), actor)


def _authority_of_principal(connection: Connection, realm_id: str, principal_id: str) -> Authority:
    principal = lock_principal(connection, realm_id, principal_id, "share")
    if principal is None or principal.state != "active":
        return NOBODY
    held = lock_roles(connection, [(realm_id, role_id) for role_id in roles_of(connection, realm_id, principal_id)])
    return Authority(tuple((None, frozenset(row.permissions)) for row in held))


def actor_of(cause: Cause) -> Key:
    """Who acts. Raises Refused("forbidden") unless it is a user."""
    if cause.actor_type != "user" or cause.actor_id is None:
        raise Refused("forbidden", "this is done by a user")
    return cause.realm_id, cause.actor_id


def allow(held: Authority, permission: str, organization_id: str | None = None) -> None:
    """Raise Refused("forbidden") unless the permission is held. The refusal names no organization: the one that was asked
    for may be another realm's."""
    if not held.holds(permission, organization_id):
        raise Refused("forbidden", f"this needs the permission {permission}")


def _taken(error: IntegrityError) -> Exception:
    """Two things of one name, or two users of one address. Any other broken constraint is a bug, and stays one."""
    if not isinstance(error.orig, errors.UniqueViolation):
        return error
    member = "email" if error.orig.diag.constraint_name == "users_email" else "name"
    return Refused("conflict", f"this {member} is taken", member)
