"""Things in a named state, made by the engine's own verbs and committed.

acme = a_realm(database)                          a realm with its built-in roles and an administrator
ada = acme.user("ada")                            an active user; kind="guest", state="suspended"
sales = acme.organization("Sales", ada)           an organization and its members
role = acme.role("editor", "org.members.read")    a role (boundary organization unless it says otherwise)
acme.grant(ada, role, sales)
team = acme.group(sales, "team", roles=[role])
acme.join(ada, team)
hook = acme.subscription("https://hooks.example.org/a")
crm = acme.principal(role)                        an active service principal that holds these roles (boundary realm)
flow = acme.published(definition(...))            a workflow with a published revision
run, _ = acme.run(flow, ada, sales)               a run started by the administrator
moved = acme.event("user.suspended", ada)         an event that another directory has reported
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pydantic import TypeAdapter
from sqlalchemy import Connection

from db.session import Database
from db.tables import Organization, User, WebhookSubscription, table
from engine.core import ids
from engine.core.trail import Cause
from engine.directory import groups, organizations, realms, roles, service_principals, users
from engine.directory.acts import perform, record
from engine.directory.effects import Effect
from engine.directory.facts import Facts, Key, Wanted
from engine.egress.secrets import Keyring
from engine.egress.signing import new_secret
from engine.lifecycle import events, revisions, runs, workflows
from engine.lifecycle.definition import parse
from engine.lifecycle.event_members import AnyEvent, ReceivedEvent

REPORTED: TypeAdapter[ReceivedEvent] = TypeAdapter(AnyEvent)

_counter = itertools.count(1)

KEYRING = Keyring({"test": bytes(32)})
"""The keys that subscriptions made here are encrypted under."""


def unique(word: str) -> str:
    """A name that no other thing of this test run has."""
    return f"{word}-{next(_counter)}"


@dataclass(frozen=True)
class TestRealm:
    """A realm of a test, and what can be made in it. Ids in, ids out."""

    __test__ = False

    database: Database
    id: str
    roles: dict[str, str]
    """Ids of the built-in roles, by name."""
    admin: str
    """A user who holds realm-admin."""

    @property
    def cause(self) -> Cause:
        """The administrator acts."""
        return self.by(self.admin)

    def by(self, user_id: str) -> Cause:
        """That user acts."""
        return Cause(self.id, "user", user_id)

    def key(self, id_: str) -> Key:
        """The key of something in this realm."""
        return self.id, id_

    def user(self, name: str | None = None, *, kind: str = "member", state: str = "active") -> str:
        """A user; its address is `<name>@example.org`."""
        name = name or unique("user")
        (user_id,) = _users(self.database, self.id, [name], kind)
        match state:
            case "suspended":
                self._do(
                    Wanted(changing={self.key(user_id)}), lambda f: users.suspend(f, self.cause, self.key(user_id))
                )
            case "deleted":
                where = (table(User).c.realm_id == self.id) & (table(User).c.id == user_id)
                with self.database.begin() as connection:
                    connection.execute(table(User).update().where(where).values(state="deleted"))
        return user_id

    def users(self, count: int, organization_id: str | None = None) -> list[str]:
        """Many users at once, members of an organization if one is named."""
        made = _users(self.database, self.id, [unique("user") for _ in range(count)], "member")
        if organization_id is not None:
            self.add_members(organization_id, made)
        return made

    def holder(self, role_id: str, organization_id: str | None = None) -> str:
        """A new user who holds that role, a member of the organization if one is named."""
        user_id = self.user()
        if organization_id is not None:
            self.add_members(organization_id, [user_id])
        self.grant(user_id, role_id, organization_id)
        return user_id

    def organization(self, name: str | None = None, *members: str, state: str = "active") -> str:
        """An organization with these members."""
        with self.database.begin() as connection:
            effect = organizations.create_organization(self.cause, name or unique("organization"))
            record(connection, effect)
        organization_id = str(effect.result["organization_id"])
        self.add_members(organization_id, members)
        if state != "active":
            where = (table(Organization).c.realm_id == self.id) & (table(Organization).c.id == organization_id)
            with self.database.begin() as connection:
                connection.execute(table(Organization).update().where(where).values(state=state))
        return organization_id

    def add_members(self, organization_id: str, user_ids: Sequence[str]) -> None:
        """Memberships, with their events."""
        wanted = Wanted(changing={self.key(u) for u in user_ids}, organizations={self.key(organization_id)})

        def act(facts: Facts) -> Effect:
            effect = Effect(True)
            for user_id in user_ids:
                added = organizations.add_membership(facts, self.cause, self.key(user_id), organization_id)
                effect.rows += added.rows
            return effect

        if user_ids:
            self._do(wanted, act)

    def role(
        self,
        name: str | None = None,
        *permissions: str,
        boundary: str = "organization",
        requires_approval: bool = False,
    ) -> str:
        """A role with these permissions."""
        effect = roles.create_role(
            self.cause, name or unique("role"), boundary, permissions, requires_approval=requires_approval
        )
        with self.database.begin() as connection:
            record(connection, effect)
        return str(effect.result["role_id"])

    def grant(
        self, user_id: str, role_id: str, organization_id: str | None = None, *, expires_at: datetime | None = None
    ) -> str:
        """Gives a user a role, realm-wide or in an organization. Returns the assignment's id."""
        wanted = Wanted(changing={self.key(user_id)}, roles={self.key(role_id)})
        if organization_id is not None:
            wanted.organizations.add(self.key(organization_id))
        effect = self._do(
            wanted,
            lambda facts: roles.grant(
                facts, self.cause, self.key(user_id), role_id, organization_id, expires_at=expires_at
            ),
        )
        return str(effect.result["assignment_id"])

    def revoke(self, user_id: str, role_id: str, organization_id: str | None = None) -> None:
        """Takes a role from a user."""
        wanted = Wanted(changing={self.key(user_id)}, roles={self.key(role_id)})
        if organization_id is not None:
            wanted.ownership.add((self.id, organization_id, role_id))
        self._do(wanted, lambda facts: roles.revoke(facts, self.cause, self.key(user_id), role_id, organization_id))

    def group(
        self,
        organization_id: str,
        name: str | None = None,
        *,
        roles: Sequence[str] = (),
        parent: str | None = None,
        members: Sequence[str] = (),
    ) -> str:
        """A group of an organization that gives these roles, under a parent if one is named."""
        wanted = Wanted(organizations={self.key(organization_id)})
        if parent is not None:
            wanted.groups.add(self.key(parent))
        effect = self._do(
            wanted,
            lambda facts: groups.create_group(facts, self.cause, organization_id, name or unique("group"), parent),
        )
        group_id = str(effect.result["group_id"])
        for role_id in roles:
            self.give(group_id, role_id)
        for user_id in members:
            self.join(user_id, group_id)
        return group_id

    def give(self, group_id: str, role_id: str) -> None:
        """Lets a group grant a role."""
        wanted = Wanted(groups={self.key(group_id)}, roles={self.key(role_id)})
        self._do(wanted, lambda facts: groups.give_role(facts, self.cause, self.key(group_id), role_id))

    def join(self, user_id: str, group_id: str, *, expires_at: datetime | None = None) -> None:
        """Takes a user into a group of an organization that the user is a member of."""
        wanted = Wanted(changing={self.key(user_id)}, groups={self.key(group_id)})
        self._do(
            wanted,
            lambda facts: groups.add_member(facts, self.cause, self.key(user_id), group_id, expires_at=expires_at),
        )

    def principal(self, *role_ids: str, name: str | None = None, state: str = "active") -> str:
        """A service principal that holds these roles, realm-wide."""
        wanted = Wanted(roles={self.key(role_id) for role_id in role_ids})
        effect = self._do(
            wanted,
            lambda facts: service_principals.create_principal(facts, self.cause, name or unique("principal"), role_ids),
        )
        principal_id = str(effect.result["principal_id"])
        if state == "disabled":
            key = self.key(principal_id)
            self._do(
                Wanted(changing_principals={key}), lambda facts: service_principals.disable(facts, self.cause, key)
            )
        return principal_id

    def subscription(
        self,
        url: str = "https://hooks.example.org/a",
        *,
        secret: str | None = None,
        state: str = "active",
        organization_id: str | None = None,
        allow_private_network: bool = False,
        keyring: Keyring = KEYRING,
    ) -> str:
        """A webhook subscription whose secret is encrypted under `keyring`."""
        subscription_id = ids.new(ids.Prefix.SUBSCRIPTION)
        is_kept = state != "deleted"
        values = {
            "realm_id": self.id,
            "id": subscription_id,
            "name": unique("subscription"),
            "organization_id": organization_id,
            "url": url if is_kept else None,
            "state": state,
            "allow_private_network": allow_private_network,
            "secret": keyring.encrypt(secret or new_secret(), bound_to=(self.id, subscription_id)) if is_kept else None,
        }
        with self.database.begin() as connection:
            connection.execute(table(WebhookSubscription).insert().values(values))
        return subscription_id

    def workflow(self, name: str | None = None, *, requires_approval: bool | None = None) -> str:
        """A workflow without a revision."""
        with self.database.begin() as connection:
            return workflows.create(
                connection, self.cause, name=name or unique("workflow"), requires_approval=requires_approval
            )

    def revision(self, workflow_id: str, definition: object, *, author: str | None = None) -> int:
        """A draft revision. Returns its number."""
        with self.database.begin() as connection:
            return revisions.add(connection, self.by(author or self.admin), workflow_id, parse(definition))

    def published(self, definition: object, name: str | None = None, *, publisher: str | None = None) -> str:
        """A workflow with that definition, published. Returns its id."""
        workflow_id = self.workflow(name)
        number = self.revision(workflow_id, definition, author=publisher)
        with self.database.begin() as connection:
            revisions.publish(connection, self.by(publisher or self.admin), workflow_id, number)
        return workflow_id

    def run(
        self, workflow_id: str, subject_id: str, organization_id: str | None = None, *, key: str | None = None
    ) -> tuple[str, bool]:
        """A run started by the administrator: its id, and whether it is new."""
        with self.database.begin() as connection:
            return runs.start_manual(connection, self.cause, workflow_id, subject_id, organization_id, key)

    def event(self, type_: str, user_id: str, *, key: str | None = None, **members: Any) -> str:
        """An event that another directory has reported. Returns its id in the outbox."""
        reported = REPORTED.validate_python({"type": type_, "user_id": user_id, **members})
        with self.database.begin() as connection:
            return events.receive(connection, self.cause, key or unique("key"), reported)[0]

    def _do(self, wanted: Wanted, act: Callable[[Facts], Effect]) -> Effect:
        with self.database.begin() as connection:
            return perform(connection, wanted, act)


def a_realm(database: Database, name: str | None = None, *, workflow_publish_approval: bool = False) -> TestRealm:
    """A realm with its built-in roles and an administrator who holds realm-admin."""
    effect = realms.create_realm(name or unique("realm"), workflow_publish_approval=workflow_publish_approval)
    with database.begin() as connection:
        record(connection, effect)
    realm_id, built_in = str(effect.result["realm_id"]), dict[str, Any](effect.result["roles"])
    (admin,) = _users(database, realm_id, ["admin"], "member")
    made = TestRealm(database, realm_id, built_in, admin)
    made.grant(admin, built_in["realm-admin"])
    return made


def count(connection: Connection, model: Any, **where: Any) -> int:
    """How many rows of a table have these values."""
    counted = table(model)
    return len(connection.execute(counted.select().filter_by(**where)).all())


def _users(database: Database, realm_id: str, names: Sequence[str], kind: str) -> list[str]:
    effect, made = Effect(True), []
    for name in names:
        created = users.create_user(Cause(realm_id), f"{name}@example.org", name.capitalize(), kind)
        effect.rows += created.rows
        made.append(str(created.result["user_id"]))
    with database.begin() as connection:
        record(connection, effect)
    return made
