"""Whether what a definition names is there, asked of a realm in a real database."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import Connection, event, insert
from sqlmodel import SQLModel

from db.session import Database
from db.tables import Group, Organization, Realm, Role, User, WebhookSubscription, table
from engine.core.errors import DefinitionInvalid, Fault
from engine.lifecycle.definition import parse
from engine.lifecycle.references import check_references
from tests.definitions import Json, definition, id_of, of_every_kind, schedule, step
from tests.definitions import event as event_trigger

HERE, ELSEWHERE = id_of("rlm", "0"), id_of("rlm", "1")
ORG, OTHER_ORG, ARCHIVED_ORG = (id_of("org", letter) for letter in "012")
ORG_ROLE, REALM_ROLE = (id_of("rol", letter) for letter in "01")
GROUP, OTHER_GROUP = (id_of("grp", letter) for letter in "01")
ACTIVE, ALSO_ACTIVE, SUSPENDED, DELETED, GUEST = (id_of("usr", letter) for letter in "01234")
WHK, PAUSED_WHK, DISABLED_WHK, DELETED_WHK, ORG_WHK = (id_of("whk", letter) for letter in "01234")

FAR_ORG, FAR_ROLE, FAR_GROUP, FAR_USER, FAR_WHK = (id_of(prefix, "9") for prefix in ("org", "rol", "grp", "usr", "whk"))
NOWHERE_ORG, NOWHERE_ROLE, NOWHERE_GROUP, NOWHERE_USER, NOWHERE_WHK = (
    id_of(prefix, "8") for prefix in ("org", "rol", "grp", "usr", "whk")
)


def put(connection: Connection, model: type[SQLModel], *rows: Json) -> None:
    for row in rows:
        connection.execute(insert(table(model)), row)


def fill(connection: Connection) -> None:
    """Two realms: what is named HERE, with its peculiarities, and what exists ELSEWHERE only."""
    put(connection, Realm, {"id": HERE, "name": "here"}, {"id": ELSEWHERE, "name": "elsewhere"})
    for realm, organizations in [(HERE, [ORG, OTHER_ORG, ARCHIVED_ORG]), (ELSEWHERE, [FAR_ORG])]:
        for id_ in organizations:
            state = "archived" if id_ == ARCHIVED_ORG else "active"
            put(connection, Organization, {"realm_id": realm, "id": id_, "name": id_, "state": state})
    roles = [(HERE, ORG_ROLE, "organization"), (HERE, REALM_ROLE, "realm"), (ELSEWHERE, FAR_ROLE, "organization")]
    for realm, id_, boundary in roles:
        role = {"realm_id": realm, "id": id_, "name": id_, "boundary": boundary, "permissions": []}
        put(connection, Role, role)
    for realm, id_, organization in [
        (HERE, GROUP, ORG),
        (HERE, OTHER_GROUP, OTHER_ORG),
        (ELSEWHERE, FAR_GROUP, FAR_ORG),
    ]:
        put(connection, Group, {"realm_id": realm, "id": id_, "organization_id": organization, "name": id_})
    for id_, state, kind in [
        (ACTIVE, "active", "member"),
        (ALSO_ACTIVE, "active", "member"),
        (SUSPENDED, "suspended", "member"),
        (DELETED, "deleted", "member"),
        (GUEST, "active", "guest"),
        (FAR_USER, "active", "member"),
    ]:
        user = {"realm_id": ELSEWHERE if id_ == FAR_USER else HERE, "id": id_, "email": f"{id_}@example.org"}
        user |= {"display_name": id_, "state": state, "kind": kind}
        put(connection, User, {**user, "suspended_at": "2026-01-01T00:00:00Z"} if state == "suspended" else user)
    for id_, state in [
        (WHK, "active"),
        (PAUSED_WHK, "paused"),
        (DISABLED_WHK, "disabled"),
        (DELETED_WHK, "deleted"),
        (ORG_WHK, "active"),
        (FAR_WHK, "active"),
    ]:
        subscription: Json = {"realm_id": ELSEWHERE if id_ == FAR_WHK else HERE, "id": id_, "name": id_, "state": state}
        if state != "deleted":
            subscription |= {"url": "https://example.org", "secret": b"x"}
        put(connection, WebhookSubscription, subscription | {"organization_id": ORG if id_ == ORG_WHK else None})


@pytest.fixture(scope="module")
def filled(module_database: Database) -> Database:
    with module_database.begin() as connection:
        fill(connection)
    return module_database


@pytest.fixture
def connection(filled: Database) -> Iterator[Connection]:
    with filled.begin() as connection:
        yield connection


def faults(connection: Connection, value: Json, realm_id: str = HERE) -> list[Fault]:
    try:
        check_references(connection, realm_id, parse(value))
    except DefinitionInvalid as invalid:
        return invalid.faults
    return []


def paths(connection: Connection, value: Json) -> list[str]:
    return [fault.path.removeprefix("definition.") for fault in faults(connection, value)]


def naming(organization: str, role: str, group: str, user: str, subscription: str) -> Json:
    """A definition that names these in every place where one can be named."""
    return definition(
        step("assign_role", id="a", role_id=role, organization_id=organization),
        step("remove_role", id="b", role_id=role, scope="organization"),
        step("add_to_group", id="c", group_id=group, organization_id=organization),
        step("remove_from_group", id="d", group_id=group, organization_id=...),
        step("remove_membership", id="e", organization_id=organization),
        step("approval", id="f", approvers=[ACTIVE, user]),
        step("call_webhook", id="g", subscription_id=subscription),
        step("remove_from_group", id="h", group_id=group, organization_id=organization),
        step("remove_role", id="i", role_id=role, scope="organization", organization_id=organization),
        triggers=[
            event_trigger(organization_id=organization),
            schedule("role_holders", role_id=role, organization_id=organization),
            schedule("group_members", group_id=group, organization_id=organization),
            schedule("guests", organization_id=organization),
        ],
    )


NAMED = [
    "triggers[0].organization_id",
    "triggers[1].select.organization_id",
    "triggers[1].select.role_id",
    "triggers[2].select.organization_id",
    "triggers[2].select.group_id",
    "triggers[3].select.organization_id",
    "steps[0].role_id",
    "steps[0].organization_id",
    "steps[1].role_id",
    "steps[2].group_id",
    "steps[2].organization_id",
    "steps[3].group_id",
    "steps[4].organization_id",
    "steps[5].approvers[1]",
    "steps[6].subscription_id",
    "steps[7].group_id",
    "steps[7].organization_id",
    "steps[8].role_id",
    "steps[8].organization_id",
]


def test_a_definition_whose_references_all_hold_is_taken(connection: Connection) -> None:
    assert faults(connection, naming(ORG, ORG_ROLE, GROUP, ALSO_ACTIVE, WHK)) == []


def test_every_missing_reference_is_told_at_once_in_the_order_of_the_definition(connection: Connection) -> None:
    nowhere = naming(NOWHERE_ORG, NOWHERE_ROLE, NOWHERE_GROUP, NOWHERE_USER, NOWHERE_WHK)
    assert paths(connection, nowhere) == NAMED


def test_what_another_realm_has_is_missing_in_the_same_words(connection: Connection) -> None:
    nowhere = naming(NOWHERE_ORG, NOWHERE_ROLE, NOWHERE_GROUP, NOWHERE_USER, NOWHERE_WHK)
    far = naming(FAR_ORG, FAR_ROLE, FAR_GROUP, FAR_USER, FAR_WHK)
    assert faults(connection, far) == faults(connection, nowhere)
    assert faults(connection, far, ELSEWHERE) == [
        Fault(
            "definition.steps[5].approvers[0]",
            "reference",
            "must be an active user of this realm who is not a guest",
        )
    ], "they are there for their own realm, where one of ours is missing"


def test_every_kind_of_definition_can_be_checked(connection: Connection) -> None:
    for value in of_every_kind():
        faults(connection, value)


def test_the_boundary_of_a_role_is_the_scope_of_its_step(connection: Connection) -> None:
    for kind in ("assign_role", "remove_role"):
        for role, boundary in [(ORG_ROLE, "organization"), (REALM_ROLE, "realm")]:
            for scope in ("organization", "realm"):
                value = definition(step(kind, role_id=role, scope=scope, organization_id=...))
                assert paths(connection, value) == ([] if scope == boundary else ["steps[0].role_id"])


def test_a_selector_takes_a_role_of_either_boundary(connection: Connection) -> None:
    triggers = [schedule("role_holders", role_id=role, organization_id=...) for role in (ORG_ROLE, REALM_ROLE)]
    assert faults(connection, definition(triggers=triggers)) == []


@pytest.mark.parametrize("kind", ["add_to_group", "remove_from_group"])
def test_a_group_is_of_the_organization_that_the_step_names_or_else_all_triggers_pin(
    connection: Connection, kind: str
) -> None:
    def refused(triggers: list[Json], organization_id: Any) -> bool:
        steps = step(kind, group_id=GROUP, organization_id=organization_id)
        told = paths(connection, definition(steps, triggers=triggers))
        assert set(told) <= {"steps[0].group_id"}
        return bool(told)

    in_org, in_other = event_trigger(organization_id=ORG), schedule(organization_id=OTHER_ORG)
    anywhere, manual = event_trigger(), {"type": "manual"}
    assert not refused([in_org], ...)
    assert refused([in_other], ...)
    assert not refused([in_other], ORG), "the step's own organization goes before that of the triggers"
    assert refused([in_org], OTHER_ORG)
    for unpinned in ([anywhere], [manual], [in_other, manual], [in_org, in_other], [in_other, anywhere]):
        assert not refused(unpinned, ...)
        assert refused(unpinned, OTHER_ORG)


def test_a_group_that_a_selector_names_is_of_the_organization_it_names(connection: Connection) -> None:
    for organization_id, expected in [(ORG, []), (OTHER_ORG, ["triggers[0].select.group_id"]), (..., [])]:
        selector = schedule("group_members", group_id=GROUP, organization_id=organization_id)
        assert paths(connection, definition(triggers=[selector])) == expected


def test_an_approver_is_an_active_user_and_no_guest(connection: Connection) -> None:
    value = definition(step("approval", approvers=[ACTIVE, SUSPENDED, ALSO_ACTIVE, DELETED, GUEST]))
    assert paths(connection, value) == [f"steps[0].approvers[{index}]" for index in (1, 3, 4)]


def test_an_organization_is_active(connection: Connection) -> None:
    value = definition(
        step("remove_membership", organization_id=ARCHIVED_ORG), triggers=[event_trigger(organization_id=ARCHIVED_ORG)]
    )
    assert paths(connection, value) == ["triggers[0].organization_id", "steps[0].organization_id"]


def test_a_subscription_is_of_no_organization_and_not_deleted_and_its_state_is_not_looked_at(
    connection: Connection,
) -> None:
    ids = [WHK, PAUSED_WHK, DISABLED_WHK, DELETED_WHK, ORG_WHK]
    value = definition(*[step("call_webhook", id=f"s{index}", subscription_id=id_) for index, id_ in enumerate(ids)])
    assert paths(connection, value) == ["steps[3].subscription_id", "steps[4].subscription_id"]


def test_each_kind_is_asked_for_once_and_only_if_there_is_one(connection: Connection) -> None:
    statements: list[str] = []
    event.listen(connection, "before_cursor_execute", lambda *arguments: statements.append(arguments[2]))
    faults(connection, naming(ORG, ORG_ROLE, GROUP, ALSO_ACTIVE, WHK))
    assert len(statements) == 5
    faults(connection, definition())
    assert len(statements) == 5
