"""A realm in which many runs are about to act on their publishers' authority: made a statement a table, by the engine's own
verbs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from db.session import Database
from engine.core import ids
from engine.directory import groups, roles
from engine.directory.acts import perform
from engine.directory.effects import Effect
from engine.directory.facts import Facts, Wanted
from engine.lifecycle.triggers import NewRun, start
from tests.definitions import Json, definition, step
from tests.driver import rows
from tests.endpoints import Endpoint
from tests.factories import TestRealm, unique
from tests.losses import WAYS, Case, Where

COVERING = ("org.roles.assign", "org.members.read", "org.members.write", "org.groups.write")


@dataclass
class Stage:
    """What the cases of one realm share."""

    acme: TestRealm
    endpoint: Endpoint
    hands: Database
    """The same database by connections on which authority is taken away."""
    sales: str = field(init=False)
    reader: str = field(init=False)
    """A role of organizations: what is given and taken."""
    team: str = field(init=False)
    """A group whose parent grants it: what is joined and left."""
    publish: str = field(init=False)
    rights: str = field(init=False)
    org_rights: str = field(init=False)
    _workflows: dict[tuple[str, bool], str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        acme = self.acme
        self.sales, self.reader = acme.organization(), acme.role(None, "org.members.read")
        self.team = acme.group(self.sales, parent=acme.group(self.sales, roles=[self.reader]))
        self.publish = acme.role(None, "realm.workflows.publish", boundary="realm")
        self.rights = acme.role(None, *COVERING, "realm.users.suspend", "realm.webhooks.write", boundary="realm")
        self.org_rights = acme.role(None, *COVERING)

    @property
    def where(self) -> Where:
        return Where(self.acme.cause, self.sales, self.org_rights)

    def set_up(self, cases: Sequence[Case]) -> None:
        """Give each case its publisher, with what covers its step, and its subject, with what its step takes away."""
        people = self.acme.users(2 * len(cases), self.sales)
        for case, publisher, subject in zip(cases, people[::2], people[1::2], strict=True):
            case.publisher, case.subject = publisher, subject
        self._found_teams([case for case in cases if WAYS[case.way].through == "group"])
        key = self.acme.key
        wanted = Wanted(
            changing={key(user_id) for user_id in people},
            roles={key(id_) for id_ in (self.publish, self.rights, self.org_rights, self.reader)}
            | {key(self.acme.roles["realm-admin"])},
            groups={key(case.team) for case in cases if case.team} | {key(self.team)},
            organizations={key(self.sales)},
        )
        self._do(wanted, lambda facts: self._grants(facts, cases))

    def starts(self, cases: Sequence[Case]) -> None:
        """Their runs are due."""
        runs = [
            NewRun(
                self.acme.id,
                self._workflow(case.kind, case.after),
                1,
                case.publisher,
                case.subject,
                self.sales,
                "manual",
                f"manual:{ids.new(ids.Prefix.RUN)}",
                1,
            )
            for case in cases
        ]
        with self.acme.database.begin() as connection:
            start(connection, runs)
        found = rows(
            self.acme.database, "SELECT id, subject_id FROM workflow_runs WHERE realm_id = :realm", realm=self.acme.id
        )
        of = {row.subject_id: row.id for row in found}
        for case in cases:
            case.run = of[case.subject]

    def _grants(self, facts: Facts, cases: Sequence[Case]) -> Iterator[Effect]:
        cause, key = self.acme.cause, self.acme.key

        def grant(user_id: str, role_id: str, organization_id: str | None = None) -> Effect:
            return roles.grant(facts, cause, key(user_id), role_id, organization_id)

        for case in cases:
            yield (publish := grant(case.publisher, self.publish))
            case.publish = str(publish.result["assignment_id"])
            match WAYS[case.way].through:
                case "group":
                    yield groups.add_member(facts, cause, key(case.publisher), case.team)
                case "organization":
                    yield grant(case.publisher, self.org_rights, self.sales)
                case _:
                    yield (rights := grant(case.publisher, self.rights))
                    case.rights = str(rights.result["assignment_id"])
            if case.spare:
                yield grant(case.publisher, self.acme.roles["realm-admin"])
            if case.kind == "remove_role":
                yield grant(case.subject, self.reader, self.sales)
            if case.kind == "remove_from_group":
                yield groups.add_member(facts, cause, key(case.subject), self.team)

    def _found_teams(self, cases: Sequence[Case]) -> None:
        """A group for each, under a parent of its own that grants what covers the step."""
        parents = self._groups([None] * len(cases))
        for case, parent, team in zip(cases, parents, self._groups(parents), strict=True):
            case.parent, case.team = parent, team
        key, cause, role = self.acme.key, self.acme.cause, self.org_rights
        wanted = Wanted(groups={key(parent) for parent in parents}, roles={key(role)})
        self._do(wanted, lambda facts: (groups.give_role(facts, cause, key(each), role) for each in parents))

    def _groups(self, parents: Sequence[str | None]) -> list[str]:
        made: list[str] = []

        def make(facts: Facts) -> Iterator[Effect]:
            for parent in parents:
                effect = groups.create_group(facts, self.acme.cause, self.sales, unique("group"), parent)
                made.append(str(effect.result["group_id"]))
                yield effect

        key = self.acme.key
        self._do(Wanted(organizations={key(self.sales)}, groups={key(each) for each in parents if each}), make)
        return made

    def _do(self, wanted: Wanted, act: Callable[[Facts], Iterator[Effect]]) -> None:
        """Many effects in one transaction."""

        def together(facts: Facts) -> Effect:
            return Effect(True, [row for effect in act(facts) for row in effect.rows])

        with self.acme.database.begin() as connection:
            perform(connection, wanted, together)

    def _workflow(self, kind: str, after: bool) -> str:
        """A published workflow with that step, alone or behind another that can be undone."""
        if (kind, after) not in self._workflows:
            first = step("assign_role", id="first", role_id=self.acme.role(None), organization_id=..., expires_in=...)
            steps = [*([first] if after else []), step(kind, **self._members(kind))]
            self._workflows[kind, after] = self.acme.published(definition(*steps))
        return self._workflows[kind, after]

    def _members(self, kind: str) -> Json:
        match kind:
            case "assign_role":
                return {"role_id": self.reader, "organization_id": ..., "expires_in": ...}
            case "remove_role":
                return {"role_id": self.reader, "scope": "organization"}
            case "add_to_group" | "remove_from_group":
                return {"group_id": self.team, "organization_id": ..., "expires_in": ...}
            case "remove_membership":
                return {"organization_id": ...}
            case "notify":
                return {"recipients": ...}
            case "call_webhook":
                return {
                    "subscription_id": self.endpoint.subscription,
                    "timeout_ms": ...,
                    "compensate": ...,
                    "retry": ...,
                }
        return {}
