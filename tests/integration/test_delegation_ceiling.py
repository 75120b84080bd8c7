"""The delegation ceiling at publication: every step is checked as if its publisher did it by hand (source: "Delegation ceiling at
publication"; lifecycle.md, "Steps"). What is published here is rolled back."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pytest
from sqlalchemy import Connection

from db.session import Database
from engine.core.errors import Refused
from engine.core.trail import Cause
from engine.directory.commands import assignments, groups, organizations, users
from engine.directory.permissions import CATALOGUE
from engine.lifecycle import revisions, workflows
from engine.lifecycle.definition import parse
from engine.outbox import subscriptions
from tests.definitions import Json, definition, event, schedule, step
from tests.driver import owner
from tests.factories import TestRealm, a_realm, unique

PUBLISH = "realm.workflows.publish"
ORG = frozenset(each for each in CATALOGUE if each.startswith("org."))
GIVEN, INHERITED, OF_REALM = "org.members.read", "org.groups.read", "realm.users.read"
"""What the role has that the steps are about; what the group's parent grants; what the role of the realm has."""


@dataclass(frozen=True)
class Things:
    """What steps are about."""

    acme: TestRealm
    sales: str
    other: str
    role: str
    realm_role: str
    team: str
    plain: str
    """A group that grants nothing."""
    hook: str
    ada: str
    """A member of both, who holds both roles and is in both groups."""
    held: str
    realm_held: str


@pytest.fixture(scope="module")
def things(module_database: Database) -> Things:
    acme = a_realm(module_database)
    ada = acme.user()
    sales, other = acme.organization(None, ada), acme.organization(None, ada)
    role, inherited = acme.role(None, GIVEN), acme.role(None, INHERITED)
    realm_role = acme.role(None, OF_REALM, boundary="realm")
    team = acme.group(sales, roles=[role], parent=acme.group(sales, roles=[inherited]), members=[ada])
    plain = acme.group(sales, members=[ada])
    held, realm_held = acme.grant(ada, role, sales), acme.grant(ada, realm_role)
    return Things(acme, sales, other, role, realm_role, team, plain, acme.subscription(), ada, held, realm_held)


@dataclass(frozen=True)
class Kind:
    """A step, what it takes to publish it beyond the right to publish, and the same thing done by hand."""

    needs: dict[str, str]
    """Permission to the code that tells of its absence."""
    step: Callable[[Things], Json]
    by_hand: Callable[[Connection, Cause, Things], Any] | None = None


CEILING = {"org.roles.assign": "forbidden", GIVEN: "grant_ceiling_exceeded"}
REALM_CEILING = {"realm.roles.assign": "forbidden", OF_REALM: "grant_ceiling_exceeded"}
GROUP_CEILING = {"org.groups.write": "forbidden", **CEILING, INHERITED: "grant_ceiling_exceeded"}
BY_ITSELF = {"organization_id": ..., "expires_in": ...}
"""A step that leaves its organization to the run."""

KINDS: dict[str, Kind] = {
    "assign_role": Kind(
        CEILING,
        lambda t: step("assign_role", role_id=t.role, **BY_ITSELF),
        lambda c, by, t: assignments.assign(c, by, user_id=t.ada, role_id=t.role, organization_id=t.sales),
    ),
    "assign_role in the realm": Kind(
        REALM_CEILING,
        lambda t: step("assign_role", role_id=t.realm_role, scope="realm", **BY_ITSELF),
        lambda c, by, t: assignments.assign(c, by, user_id=t.ada, role_id=t.realm_role),
    ),
    "remove_role": Kind(
        CEILING,
        lambda t: step("remove_role", role_id=t.role, scope="organization"),
        lambda c, by, t: assignments.revoke(c, by, t.held),
    ),
    "remove_role in the realm": Kind(
        REALM_CEILING,
        lambda t: step("remove_role", role_id=t.realm_role, scope="realm"),
        lambda c, by, t: assignments.revoke(c, by, t.realm_held),
    ),
    "add_to_group": Kind(
        GROUP_CEILING,
        lambda t: step("add_to_group", group_id=t.team, **BY_ITSELF),
        lambda c, by, t: groups.add_member(c, by, t.team, t.ada),
    ),
    "add_to_group that grants nothing": Kind(
        {"org.groups.write": "forbidden"},
        lambda t: step("add_to_group", group_id=t.plain, **BY_ITSELF),
        lambda c, by, t: groups.add_member(c, by, t.plain, t.ada),
    ),
    "remove_from_group": Kind(
        GROUP_CEILING,
        lambda t: step("remove_from_group", group_id=t.team, organization_id=...),
        lambda c, by, t: groups.remove_member(c, by, t.team, t.ada),
    ),
    "remove_from_group that grants nothing": Kind(
        {"org.groups.write": "forbidden"},
        lambda t: step("remove_from_group", group_id=t.plain, organization_id=...),
        lambda c, by, t: groups.remove_member(c, by, t.plain, t.ada),
    ),
    "remove_membership": Kind(
        {"org.members.write": "forbidden"},
        lambda t: step("remove_membership", organization_id=...),
        lambda c, by, t: organizations.remove_member(c, by, t.sales, t.ada),
    ),
    "suspend_user": Kind(
        {"realm.users.suspend": "forbidden"},
        lambda t: step("suspend_user"),
        lambda c, by, t: users.suspend(c, by, t.ada),
    ),
    "call_webhook": Kind(
        {"realm.webhooks.write": "forbidden"},
        lambda t: step("call_webhook", subscription_id=t.hook),
        lambda c, by, t: subscriptions.change_state(c, by, t.hook, "pause"),
    ),
    "notify": Kind({}, lambda t: step("notify", recipients=...)),
    "approval": Kind({}, lambda t: step("approval", approvers=[t.ada])),
    "wait": Kind({}, lambda t: step("wait")),
    "end": Kind({}, lambda t: step("end")),
}

IN_AN_ORGANIZATION = [name for name, kind in KINDS.items() if kind.needs and all(each in ORG for each in kind.needs)]
PARTS = [(name, part) for name, kind in KINDS.items() for part in kind.needs]

Refusal = tuple[str, str | None] | None
"""Category and path; None when there was none."""


def told(act: Callable[[], Any]) -> Refusal:
    try:
        act()
    except Refused as refused:
        return refused.category, refused.path
    return None


def published(things: Things, publisher: str, *steps: Json, triggers: list[Json] | None = None) -> Refusal:
    """What that user is told who publishes these steps, behind one that needs nothing."""
    value = definition(step("wait", id="w"), *steps, triggers=triggers)

    def publish() -> None:
        with things.acme.database.engine.connect() as connection:
            workflow_id = workflows.create(connection, things.acme.cause, name=unique("workflow"))
            number = revisions.add(connection, things.acme.cause, workflow_id, parse(value))
            revisions.publish(connection, things.acme.by(publisher), workflow_id, number)

    return told(publish)


def done_by_hand(things: Things, user_id: str, name: str) -> Refusal:
    """What that user is told who does by hand what the step does."""
    by_hand = KINDS[name].by_hand
    assert by_hand is not None

    def do() -> None:
        with things.acme.database.engine.connect() as connection:
            by_hand(connection, things.acme.by(user_id), things)

    return told(do)


def a_schedule(things: Things, organization_id: Any) -> Json:
    return schedule("role_holders", role_id=things.role, organization_id=organization_id)


def in_sales(things: Things) -> list[Json]:
    """Triggers that all pin sales."""
    return [event(organization_id=things.sales), a_schedule(things, things.sales)]


def a_publisher(things: Things, permissions: Iterable[str], *, through: str = "the realm") -> str:
    """A user who may publish and holds these permissions, in the realm, or in sales by a role or by groups."""
    acme, exactly = things.acme, sorted(permissions)
    publisher = acme.holder(acme.role(None, PUBLISH, boundary="realm"))
    if through == "the realm":
        acme.grant(publisher, acme.role(None, *exactly, boundary="realm"))
        return publisher
    acme.add_members(things.sales, [publisher])
    role = acme.role(None, *exactly)
    match through:
        case "the organization":
            acme.grant(publisher, role, things.sales)
        case "a group":
            acme.group(things.sales, roles=[role], members=[publisher])
        case "a group's grandparent":
            top = acme.group(things.sales, roles=[role])
            acme.group(things.sales, parent=acme.group(things.sales, parent=top), members=[publisher])
    return publisher


# each part


@pytest.mark.parametrize("name", KINDS)
def test_a_step_is_published_with_exactly_the_authority_that_the_specification_names(things: Things, name: str) -> None:
    kind = KINDS[name]
    assert published(things, a_publisher(things, kind.needs), kind.step(things)) is None


@pytest.mark.parametrize("name", KINDS)
def test_a_step_is_published_by_nobody_without_the_right_to_publish(things: Things, name: str) -> None:
    everything_else = things.acme.role(None, *(each for each in CATALOGUE if each != PUBLISH), boundary="realm")
    strong = things.acme.holder(everything_else)
    assert published(things, strong, KINDS[name].step(things)) == ("forbidden", None)


@pytest.mark.parametrize(("name", "part"), PARTS)
def test_a_step_is_refused_by_name_when_any_one_part_of_its_authority_is_missing(
    things: Things, name: str, part: str
) -> None:
    """Though its publisher holds everything else there is, and just as the same thing is refused by hand."""
    code, everything_else = KINDS[name].needs[part], set(CATALOGUE) - {part}
    publisher = a_publisher(things, everything_else)
    assert published(things, publisher, KINDS[name].step(things)) == (code, "definition.steps[1]")
    assert done_by_hand(things, publisher, name) == (code, None)


@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if kind.needs])
def test_what_may_be_published_may_be_done_by_hand(things: Things, name: str) -> None:
    assert done_by_hand(things, a_publisher(things, KINDS[name].needs), name) is None


def test_the_first_step_that_is_refused_is_named(things: Things) -> None:
    weak = a_publisher(things, ["realm.users.suspend", *CEILING])
    steps = [KINDS[name].step(things) for name in ("suspend_user", "assign_role", "call_webhook", "remove_membership")]
    named = [{**each, "id": f"s{index}"} for index, each in enumerate(steps)]
    assert published(things, weak, *named) == ("forbidden", "definition.steps[3]")
    assert published(things, weak, *named[:2], named[3]) == ("forbidden", "definition.steps[3]")
    assert published(things, weak, *named[:2]) is None


# where it is held


THROUGH = ["the organization", "a group", "a group's grandparent"]


@pytest.mark.parametrize("through", THROUGH)
@pytest.mark.parametrize("name", IN_AN_ORGANIZATION)
def test_authority_in_one_organization_is_enough_where_all_triggers_pin_it(
    things: Things, name: str, through: str
) -> None:
    publisher, a_step = a_publisher(things, KINDS[name].needs, through=through), KINDS[name].step(things)
    assert published(things, publisher, a_step, triggers=in_sales(things)) is None
    code = next(iter(KINDS[name].needs.values()))
    assert published(things, publisher, a_step) == (code, "definition.steps[1]")


@pytest.mark.parametrize(("name", "part"), [(name, part) for name, part in PARTS if name in IN_AN_ORGANIZATION])
def test_authority_in_one_organization_is_asked_for_in_every_part(things: Things, name: str, part: str) -> None:
    kind = KINDS[name]
    publisher = a_publisher(things, ORG - {part}, through="the organization")
    refusal = published(things, publisher, kind.step(things), triggers=in_sales(things))
    assert refusal == (kind.needs[part], "definition.steps[1]")


PINS: dict[str, tuple[Callable[[Things], list[Json]], bool]] = {
    "an event in sales": (lambda t: [event(organization_id=t.sales)], True),
    "an event in sales, twice": (lambda t: [event(organization_id=t.sales)] * 2, True),
    "a schedule of sales": (lambda t: in_sales(t)[1:], True),
    "an event and a schedule": (in_sales, True),
    "by hand": (lambda t: [{"type": "manual"}], False),
    "an event anywhere": (lambda t: [event()], False),
    "a schedule of all": (lambda t: [a_schedule(t, ...)], False),
    "in sales, and by hand": (lambda t: [*in_sales(t), {"type": "manual"}], False),
    "in sales, and anywhere": (lambda t: [*in_sales(t), event()], False),
    "in sales, and in another": (lambda t: [*in_sales(t), event(organization_id=t.other)], False),
    "in another": (lambda t: [event(organization_id=t.other)], False),
}
"""Triggers, and whether every run of theirs is one of sales."""


@pytest.mark.parametrize("pins", PINS)
def test_an_organization_administrator_publishes_for_their_own_organization_alone(things: Things, pins: str) -> None:
    triggers, enough = PINS[pins]
    publisher = a_publisher(things, ORG, through="the organization")
    everywhere = a_publisher(things, ORG)
    for name in ("assign_role", "remove_role", "remove_membership"):
        a_step = KINDS[name].step(things)
        code = next(iter(KINDS[name].needs.values()))
        refusal = published(things, publisher, a_step, triggers=triggers(things))
        assert refusal == (None if enough else (code, "definition.steps[1]"))
        assert published(things, everywhere, a_step, triggers=triggers(things)) is None


@pytest.mark.parametrize("name", IN_AN_ORGANIZATION)
def test_a_step_s_own_organization_counts_whatever_the_triggers_pin(things: Things, name: str) -> None:
    publisher, a_step = a_publisher(things, ORG, through="the organization"), KINDS[name].step(things)
    in_another = [event(organization_id=things.other)]
    for triggers in (None, in_another, in_sales(things)):
        assert published(things, publisher, {**a_step, "organization_id": things.sales}, triggers=triggers) is None
    if "group" not in name:  # the group is one of sales
        refusal = published(things, publisher, {**a_step, "organization_id": things.other}, triggers=in_sales(things))
        assert refusal == ("forbidden", "definition.steps[1]")


def test_authority_in_an_organization_is_none_over_the_realm(things: Things) -> None:
    """Nor does a role of the realm come into an organization's hands."""
    publisher = a_publisher(things, ORG, through="the organization")
    for name in ("assign_role in the realm", "remove_role in the realm", "suspend_user", "call_webhook"):
        refusal = published(things, publisher, KINDS[name].step(things), triggers=in_sales(things))
        assert refusal == ("forbidden", "definition.steps[1]")


# wildcards and built-in roles


OF_THE_REALM = [name for name, kind in KINDS.items() if kind.needs and name not in IN_AN_ORGANIZATION]

WILD: dict[str, tuple[list[str], list[str]]] = {
    "realm.*": (["realm.*"], OF_THE_REALM),
    "org.*": (["org.*"], IN_AN_ORGANIZATION),
    "realm.* and org.*": (["realm.*", "org.*"], [*OF_THE_REALM, *IN_AN_ORGANIZATION]),
    "*": (["*"], [*OF_THE_REALM, *IN_AN_ORGANIZATION]),
}
"""Permissions, and what they let publish."""


@pytest.mark.parametrize("wild", WILD)
def test_a_wildcard_is_all_that_it_stands_for_and_nothing_else(things: Things, wild: str) -> None:
    permissions, enough = WILD[wild]
    publisher = a_publisher(things, permissions)
    for name in (*OF_THE_REALM, *IN_AN_ORGANIZATION):
        refusal = published(things, publisher, KINDS[name].step(things))
        assert refusal == (None if name in enough else ("forbidden", "definition.steps[1]")), name


def giving(role: str, scope: str) -> Json:
    return step("assign_role", role_id=role, scope=scope, **BY_ITSELF)


@pytest.mark.parametrize(
    ("wanted", "scope", "enough"),
    [
        ("*", "realm", {"*"}),
        ("realm.*", "realm", {"realm.*, org.*", "*"}),
        ("org.*", "realm", {"realm.*, org.*", "*"}),
        ("org.*", "organization", {"realm.*, org.*", "*"}),
    ],
)
def test_a_role_with_a_wildcard_is_given_by_whoever_holds_the_wildcard_or_a_wider_one(
    things: Things, wanted: str, scope: str, enough: set[str]
) -> None:
    role = things.acme.role(None, wanted, boundary=scope)
    for name, permissions in {
        "realm.*, org.*": ["realm.*", "org.*"],
        "*": ["*"],
        "one by one": list(CATALOGUE),
    }.items():
        refusal = published(things, a_publisher(things, permissions), giving(role, scope))
        assert refusal == (None if name in enough else ("grant_ceiling_exceeded", "definition.steps[1]")), name


BUILT_IN: dict[str, list[str]] = {
    "realm-admin": [name for name, kind in KINDS.items() if kind.needs],
    "realm-auditor": [],
    "org-owner": IN_AN_ORGANIZATION,
    "org-admin": [
        "add_to_group that grants nothing",
        "remove_from_group that grants nothing",
        "remove_membership",
    ],
}
"""What the built-in roles let publish, for sales."""


@pytest.mark.parametrize("name", BUILT_IN)
def test_the_built_in_roles_publish_what_they_could_do_by_hand(things: Things, name: str) -> None:
    acme, publisher = things.acme, a_publisher(things, [])
    acme.add_members(things.sales, [publisher])
    acme.grant(publisher, acme.roles[name], things.sales if name.startswith("org-") else None)
    for kind in (name for name, kind in KINDS.items() if kind.needs):
        refusal = published(things, publisher, KINDS[kind].step(things), triggers=in_sales(things))
        assert refusal == (None if kind in BUILT_IN[name] else ("forbidden", "definition.steps[1]")), kind


@pytest.mark.parametrize(
    ("giver", "given", "code"),
    [
        ("realm-admin", "realm-admin", None),
        ("realm-admin", "org-owner", None),
        ("realm-admin", "realm-auditor", None),
        ("org-owner", "org-owner", None),
        ("org-owner", "org-admin", None),
        ("org-owner", "realm-auditor", "forbidden"),
        ("org-owner", "realm-admin", "forbidden"),
        ("org-admin", "org-admin", "forbidden"),
        ("realm-auditor", "realm-auditor", "forbidden"),
    ],
)
def test_the_built_in_roles_give_no_more_than_they_are(
    things: Things, giver: str, given: str, code: str | None
) -> None:
    acme, publisher = things.acme, a_publisher(things, [])
    acme.add_members(things.sales, [publisher])
    acme.grant(publisher, acme.roles[giver], things.sales if giver.startswith("org-") else None)
    scope = "organization" if given.startswith("org-") else "realm"
    refusal = published(things, publisher, giving(acme.roles[given], scope), triggers=in_sales(things))
    assert refusal == (None if code is None else (code, "definition.steps[1]"))


# what does not count


LAPSES: dict[str, str] = {
    "the role has expired": "UPDATE role_assignments SET expires_at = clock_timestamp()"
    " WHERE user_id = :user AND scope = 'organization'",
    "the group membership has expired": "UPDATE group_members SET expires_at = clock_timestamp() WHERE user_id = :user",
    "the user is suspended": "UPDATE users SET state = 'suspended', suspended_at = clock_timestamp() WHERE id = :user",
    "the user is deleted": "UPDATE users SET state = 'deleted' WHERE id = :user",
}


@pytest.mark.parametrize("lapse", LAPSES)
def test_authority_that_is_over_counts_for_nothing(things: Things, lapse: str) -> None:
    through = "a group's grandparent" if "group" in lapse else "the organization"
    publisher = a_publisher(things, KINDS["assign_role"].needs, through=through)
    a_step = KINDS["assign_role"].step(things)
    assert published(things, publisher, a_step, triggers=in_sales(things)) is None
    owner(things.acme.database, LAPSES[lapse], user=publisher)
    path = None if "user" in lapse else "definition.steps[1]"
    assert published(things, publisher, a_step, triggers=in_sales(things)) == ("forbidden", path)


def test_a_descendant_of_the_publisher_s_group_lends_them_nothing(things: Things) -> None:
    publisher, acme = a_publisher(things, []), things.acme
    acme.add_members(things.sales, [publisher])
    mine = acme.group(things.sales, members=[publisher])
    acme.group(things.sales, parent=mine, roles=[acme.role(None, *ORG)])
    refusal = published(things, publisher, KINDS["assign_role"].step(things), triggers=in_sales(things))
    assert refusal == ("forbidden", "definition.steps[1]")


def test_who_publishes_counts_not_who_wrote_it(things: Things) -> None:
    """The revisions here are all written by an administrator who could do anything."""
    assert published(things, things.acme.admin, KINDS["suspend_user"].step(things)) is None
    assert published(things, a_publisher(things, []), KINDS["suspend_user"].step(things)) == (
        "forbidden",
        "definition.steps[1]",
    )
