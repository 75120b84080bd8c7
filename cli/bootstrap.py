"""The first realm and its first administrator: what no route can make, since nobody could ask for it yet."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, ValidationError
from sqlalchemy.exc import IntegrityError

from api.shapes import Email, Name
from db.session import Database
from engine.core.errors import Refused
from engine.core.faults import sqlstate
from engine.core.trail import Cause
from engine.directory import realms, roles, users
from engine.directory.acts import perform, record
from engine.directory.facts import Wanted


@dataclass(frozen=True)
class NewRealm:
    """A realm that was made: its id, and the user who holds `realm-admin` in it."""

    realm_id: str
    admin_id: str
    roles: dict[str, str]


class _Names(BaseModel):
    """What the API would ask of the same words."""

    model_config = ConfigDict(strict=True, hide_input_in_errors=True)

    name: Name
    admin_email: Email
    admin_name: Name


def create_realm(database: Database, name: str, admin_email: str, admin_name: str) -> NewRealm:
    """Make a realm with its built-in roles and an administrator. Raises Refused: `validation_failed`, or `conflict` for a name
    that is taken."""
    try:
        _Names(name=name, admin_email=admin_email, admin_name=admin_name)
    except ValidationError as invalid:
        member = str(invalid.errors()[0]["loc"][0])
        rule = "is not a mail address" if member == "admin_email" else "has 1 to 100 characters on one line"
        raise Refused("validation_failed", f"the {member.replace('_', ' ')} {rule}", member) from None
    try:
        with database.begin() as connection:
            made = realms.create_realm(name)
            record(connection, made)
            realm_id, built_in = str(made.result["realm_id"]), dict(made.result["roles"])
            system = Cause(realm_id)
            admin = users.create_user(system, admin_email, admin_name)
            record(connection, admin)
            user = (realm_id, str(admin.result["user_id"]))
            role_id = built_in["realm-admin"]
            wanted = Wanted(changing={user}, roles={(realm_id, role_id)})
            perform(connection, wanted, lambda facts: roles.grant(facts, system, user, role_id, None))
    except IntegrityError as error:
        if sqlstate(error) == "23505":
            raise Refused("conflict", f"a realm named {name} exists already") from error
        raise
    return NewRealm(realm_id, user[1], built_in)
