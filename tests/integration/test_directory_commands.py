"""What a person may do by hand is asked by the command itself, whoever calls it: under locks, in the effect's transaction."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from sqlalchemy import Connection

from db.session import Database
from engine.core.errors import Refused
from engine.core.trail import Cause
from engine.directory.commands import assignments, groups, organizations, roles, service_principals, users
from engine.directory.permissions import CATALOGUE
from engine.lifecycle import settings
from engine.outbox import subscriptions
from tests.driver import rows, until
from tests.factories import KEYRING, TestRealm, a_realm, unique


@dataclass(frozen=True)
class Things:
    """What the commands are tried on."""

    realm: TestRealm
    ada: str
    sales: str
    team: str
    role: str
    assignment: str
    hook: str
    machine: str


@pytest.fixture(scope="module")
def things(module_database: Database) -> Things:
    acme = a_realm(module_database)
    ada, role = acme.user(), acme.role(None, "org.members.read")
    sales = acme.organization(None, ada)
    team = acme.group(sales, members=[ada], roles=[role])
    assignment = acme.grant(ada, role, sales)
    return Things(acme, ada, sales, team, role, assignment, acme.subscription(), acme.principal())


Command = Callable[[Connection, Cause, Things], Any]

COMMANDS: dict[str, tuple[str, Command]] = {
    "users.create": (
        "realm.users.write",
        lambda c, by, t: users.create(c, by, email=f"{unique('u')}@example.org", display_name="X"),
    ),
    "users.update": ("realm.users.write", lambda c, by, t: users.update(c, by, t.ada, display_name=unique("X"))),
    "users.suspend": ("realm.users.suspend", lambda c, by, t: users.suspend(c, by, t.ada)),
    "users.reactivate": ("realm.users.suspend", lambda c, by, t: users.reactivate(c, by, t.ada)),
    "organizations.create": (
        "realm.organizations.write",
        lambda c, by, t: organizations.create(c, by, name=unique("o")),
    ),
    "organizations.add_member": (
        "org.members.write",
        lambda c, by, t: organizations.add_member(c, by, t.sales, t.realm.admin),
    ),
    "organizations.remove_member": (
        "org.members.write",
        lambda c, by, t: organizations.remove_member(c, by, t.sales, t.ada),
    ),
    "roles.create": (
        "realm.roles.write",
        lambda c, by, t: roles.create(c, by, name=unique("r"), boundary="realm", permissions=[]),
    ),
    "assignments.assign": (
        "org.roles.assign",
        lambda c, by, t: assignments.assign(c, by, user_id=t.ada, role_id=t.role, organization_id=t.sales),
    ),
    "assignments.extend": ("org.roles.assign", lambda c, by, t: assignments.extend(c, by, t.assignment, None)),
    "assignments.revoke": ("org.roles.assign", lambda c, by, t: assignments.revoke(c, by, t.assignment)),
    "groups.create": (
        "org.groups.write",
        lambda c, by, t: groups.create(c, by, organization_id=t.sales, name=unique("g")),
    ),
    "groups.add_member": ("org.groups.write", lambda c, by, t: groups.add_member(c, by, t.team, t.ada)),
    "groups.remove_member": ("org.groups.write", lambda c, by, t: groups.remove_member(c, by, t.team, t.ada)),
    "groups.give_role": ("org.groups.write", lambda c, by, t: groups.give_role(c, by, t.team, t.role)),
    "groups.take_role": ("org.groups.write", lambda c, by, t: groups.take_role(c, by, t.team, t.role)),
    "subscriptions.create": (
        "realm.webhooks.write",
        lambda c, by, t: subscriptions.create(c, by, KEYRING, name="x", url="https://hooks.example.org/"),
    ),
    "subscriptions.rotate_secret": (
        "realm.webhooks.write",
        lambda c, by, t: subscriptions.rotate_secret(c, by, KEYRING, t.hook),
    ),
    "subscriptions.change_state": (
        "realm.webhooks.write",
        lambda c, by, t: subscriptions.change_state(c, by, t.hook, "pause"),
    ),
    "subscriptions.delete": ("realm.webhooks.write", lambda c, by, t: subscriptions.delete(c, by, t.hook)),
    "service_principals.create": (
        "realm.users.write",
        lambda c, by, t: service_principals.create(c, by, name=unique("m")),
    ),
    "service_principals.update": (
        "realm.users.write",
        lambda c, by, t: service_principals.update(c, by, t.machine, name=unique("m")),
    ),
    "service_principals.disable": (
        "realm.users.write",
        lambda c, by, t: service_principals.disable(c, by, t.machine),
    ),
    "service_principals.enable": ("realm.users.write", lambda c, by, t: service_principals.enable(c, by, t.machine)),
    "settings.change": (
        "realm.settings.write",
        lambda c, by, t: settings.change(c, by, extensions={"workflow_publish_approval": True}),
    ),
}


def tried(things: Things, by: Cause, command: Command) -> None:
    """The command, rolled back."""
    with things.realm.database.engine.connect() as connection:
        command(connection, by, things)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_needs_its_permission_and_no_other_helps(things: Things, name: str) -> None:
    permission, command = COMMANDS[name]
    everything_else = [each for each in CATALOGUE if each != permission]
    others = things.realm.role(None, *everything_else, boundary="realm")
    with pytest.raises(Refused) as refused:
        tried(things, things.realm.by(things.realm.holder(others)), command)
    assert refused.value.category == "forbidden"
    tried(things, things.realm.cause, command)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_is_a_users_and_of_one_who_is_active(things: Things, name: str) -> None:
    _, command = COMMANDS[name]
    leaver = things.realm.holder(things.realm.roles["realm-admin"])
    with things.realm.database.begin() as connection:
        users.suspend(connection, things.realm.cause, leaver)
    for nobody in (
        Cause(things.realm.id),
        Cause(things.realm.id, "service_principal", leaver),
        things.realm.by(leaver),
    ):
        with pytest.raises(Refused) as refused:
            tried(things, nobody, command)
        assert refused.value.category == "forbidden"


@pytest.mark.parametrize("name", [name for name, (permission, _) in COMMANDS.items() if permission.startswith("org.")])
def test_authority_over_another_organization_is_none_here(things: Things, name: str) -> None:
    other = things.realm.organization()
    stranger = things.realm.holder(things.realm.roles["org-owner"], other)
    with pytest.raises(Refused) as refused:
        tried(things, things.realm.by(stranger), COMMANDS[name][1])
    assert refused.value.category == "forbidden"


def test_a_group_stops_granting_only_when_nobody_relies_on_it_any_more(things: Things) -> None:
    """Whoever acts with what a group grants has committed before the group grants it no longer, or does not act."""
    acme = things.realm
    role = acme.role(None, "org.members.write")
    reliant = acme.user()
    acme.add_members(things.sales, [reliant])
    group = acme.group(things.sales, roles=[role], members=[reliant])
    order: list[str] = []

    def take() -> None:
        with acme.database.begin() as connection:
            groups.take_role(connection, acme.cause, group, role)
            order.append("taken")

    taking = threading.Thread(target=take)
    with acme.database.begin() as connection:
        organizations.add_member(connection, acme.by(reliant), things.sales, acme.user())
        taking.start()
        waiting = (
            "SELECT count(*) AS count FROM pg_stat_activity"
            " WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%groups%'"
        )
        until(lambda: rows(acme.database, waiting)[0].count)
        order.append("acted")
    taking.join(20)
    assert order == ["acted", "taken"]
    with acme.database.begin() as connection, pytest.raises(Refused):
        organizations.add_member(connection, acme.by(reliant), things.sales, acme.user())
