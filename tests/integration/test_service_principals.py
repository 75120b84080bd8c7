"""Service principals: nobody lets a machine do what they could not let a user do, and a machine changes nothing by hand."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from engine.core.errors import Refused
from engine.core.trail import Cause
from engine.directory.commands import service_principals
from engine.directory.commands.acting import require_still
from tests.calling import Api, paths, problem
from tests.definitions import Json, id_of
from tests.driver import rows, until
from tests.factories import TestRealm, a_realm, unique

WEAK = ("realm.users.read", "realm.users.write", "realm.roles.assign")


def made(api: Api, *role_ids: str) -> Json:
    answer = api.post("/service-principals", {"name": unique("machine"), "role_ids": [*role_ids]})
    assert answer.status_code == 201, answer.text
    principal: Json = answer.json()
    return principal


def path_of(principal_id: str) -> str:
    return f"/service-principals/{principal_id}"


def realm_role(api: Api, *permissions: str, requires_approval: bool = False) -> str:
    return api.realm.role(None, *permissions, boundary="realm", requires_approval=requires_approval)


@pytest.fixture(scope="module")
def weak(api: Api) -> Api:
    """Makes service principals, and holds no more than that takes."""
    return api.by(api.realm.holder(realm_role(api, *WEAK)))


def trail(api: Api, principal_id: str) -> list[tuple[str, Json]]:
    """What was done to it, the oldest first."""
    items = api.get("/audit-events", target_id=principal_id).json()["items"]
    return [(event["type"], event["details"]) for event in reversed(items)]


# Made, read, changed


def test_a_service_principal_is_made_read_and_changed(api: Api) -> None:
    one, two = sorted([realm_role(api, "realm.users.read"), realm_role(api)])
    principal = made(api, two, one)
    assert (principal["role_ids"], principal["state"]) == ([one, two], "active")
    assert principal["created_by"] == api.realm.admin
    path = path_of(principal["id"])
    assert api.get(path).json() == principal
    name = unique("renamed")
    assert api.patch(path, {"name": name}).json() == {**principal, "name": name}
    assert api.patch(path, {"role_ids": [two]}).json() == {**principal, "name": name, "role_ids": [two]}
    assert api.patch(path, {"role_ids": []}).json()["role_ids"] == []
    assert api.post("/service-principals", {"name": unique("machine")}).json()["role_ids"] == []


def test_they_are_listed_by_state(api: Api) -> None:
    active, disabled = api.realm.principal(), api.realm.principal(state="disabled")

    def found(**query: str) -> list[str]:
        ids = [each["id"] for each in api.get("/service-principals", limit=100, **query).json()["items"]]
        return [id_ for id_ in ids if id_ in (active, disabled)]

    assert found() == [disabled, active]
    assert found(state="active") == [active]
    assert found(state="disabled") == [disabled]


def test_a_name_is_taken_once_in_a_realm(api: Api) -> None:
    first, second = made(api), made(api)
    api.post(f"{path_of(first['id'])}/disable")
    for answer in (
        api.post("/service-principals", {"name": first["name"]}),
        api.patch(path_of(second["id"]), {"name": first["name"]}),
    ):
        assert problem(answer, 409, "conflict")["errors"][0]["path"] == "name"
    elsewhere = api.at(a_realm(api.realm.database))
    assert elsewhere.post("/service-principals", {"name": first["name"]}).status_code == 201


def test_what_was_done_is_audited_by_ids_alone(api: Api) -> None:
    one, two = realm_role(api, "realm.users.read"), realm_role(api)
    principal = made(api, one)
    path, name = path_of(principal["id"]), unique("renamed")
    api.patch(path, {"name": name, "role_ids": [two]})
    api.patch(path, {"name": name, "role_ids": [two]})
    api.patch(path, {})
    for verb in ("enable", "disable", "disable", "enable"):
        assert api.post(f"{path}/{verb}").status_code == 200
    assert trail(api, principal["id"]) == [
        ("service_principal.created", {"role_ids": [one]}),
        (
            "service_principal.changed",
            {"changed_fields": ["name", "role_ids"], "given": [two], "taken": [one]},
        ),
        ("service_principal.disabled", {}),
        ("service_principal.enabled", {}),
    ]


# What it can hold


def unknown(api: Api) -> str:
    return id_of("rol")


def of_another_realm(api: Api) -> str:
    return a_realm(api.realm.database).roles["realm-auditor"]


def of_organizations(api: Api) -> str:
    return api.realm.role()


def with_an_approval(api: Api) -> str:
    return realm_role(api, requires_approval=True)


REFUSED_ROLES: list[tuple[Callable[[Api], str], int, str]] = [
    (unknown, 404, "not_found"),
    (of_another_realm, 404, "not_found"),
    (of_organizations, 422, "validation_failed"),
    (with_an_approval, 403, "approval_missing"),
]


@pytest.mark.parametrize(("role", "status", "code"), REFUSED_ROLES, ids=lambda value: getattr(value, "__name__", None))
def test_a_role_it_cannot_be_given_is_named(api: Api, role: Callable[[Api], str], status: int, code: str) -> None:
    held = realm_role(api)
    principal = made(api, held)
    body = {"name": unique("machine"), "role_ids": [held, role(api)]}
    for answer in (api.post("/service-principals", body), api.patch(path_of(principal["id"]), body)):
        refused = problem(answer, status, code)
        assert [error["path"] for error in refused["errors"]] == ["role_ids[1]"]
    assert api.get(path_of(principal["id"])).json() == principal, "nothing of a refused change is done"


def test_an_unknown_role_and_one_of_another_realm_are_told_the_same(api: Api) -> None:
    answers = [
        api.post("/service-principals", {"name": "x", "role_ids": [role(api)]}) for role in (unknown, of_another_realm)
    ]
    assert problem(answers[0], 404, "not_found") == problem(answers[1], 404, "not_found")


def test_it_holds_a_role_once_and_twenty_at_most(api: Api) -> None:
    roles = [realm_role(api) for _ in range(21)]
    principal = made(api, *roles[:20])
    assert len(principal["role_ids"]) == 20
    path = path_of(principal["id"])
    assert paths(api.patch(path, {"role_ids": roles})) == ["role_ids"]
    assert paths(api.patch(path, {"role_ids": [roles[0], roles[1], roles[0]]})) == ["role_ids[2]"]
    assert paths(api.post("/service-principals", {"name": "x", "role_ids": [roles[0]] * 2})) == ["role_ids[1]"]


# The ceiling


def test_nobody_gives_a_machine_more_than_they_hold(api: Api, weak: Api) -> None:
    within, beyond = realm_role(api, "realm.users.read"), realm_role(api, "realm.users.suspend")
    principal = made(weak, within)
    path, body = path_of(principal["id"]), {"name": unique("machine"), "role_ids": [within, beyond]}
    for answer in (weak.post("/service-principals", body), weak.patch(path, body)):
        refused = problem(answer, 403, "grant_ceiling_exceeded")
        assert [error["path"] for error in refused["errors"]] == ["role_ids[1]"]
    assert api.get(path).json() == principal


def test_whoever_may_not_assign_roles_gives_and_takes_none(api: Api) -> None:
    role = realm_role(api, "realm.users.read")
    writer = api.by(api.realm.holder(realm_role(api, "realm.users.read", "realm.users.write")))
    bare, holding = made(writer), made(api, role)
    problem(writer.patch(path_of(bare["id"]), {"role_ids": [role]}), 403, "forbidden")
    problem(writer.patch(path_of(holding["id"]), {"role_ids": []}), 403, "forbidden")
    assert writer.patch(path_of(holding["id"]), {"name": unique("x"), "role_ids": [role]}).status_code == 200


def test_a_role_beyond_the_ceiling_is_not_taken_either_and_may_stay(api: Api, weak: Api) -> None:
    within, beyond = realm_role(api, "realm.users.read"), realm_role(api, "realm.users.suspend")
    path = path_of(made(api, beyond)["id"])
    problem(weak.patch(path, {"role_ids": []}), 403, "grant_ceiling_exceeded")
    assert weak.patch(path, {"role_ids": [beyond, within]}).json()["role_ids"] == sorted([within, beyond])


def test_authority_over_one_organization_is_none_over_the_realm(api: Api) -> None:
    sales = api.realm.organization()
    owner = api.realm.holder(api.realm.roles["org-owner"], sales)
    api.realm.grant(owner, realm_role(api, *WEAK))
    body = {"name": unique("machine"), "role_ids": [realm_role(api, "org.members.read")]}
    problem(api.by(owner).post("/service-principals", body), 403, "grant_ceiling_exceeded")


def test_a_weaker_administrator_does_not_revive_a_strong_machine(api: Api, weak: Api) -> None:
    path = path_of(made(api, realm_role(api, "realm.users.suspend"))["id"])
    assert weak.post(f"{path}/disable").json()["state"] == "disabled"
    problem(weak.post(f"{path}/enable"), 403, "grant_ceiling_exceeded")
    assert api.get(path).json()["state"] == "disabled"
    assert api.post(f"{path}/enable").json()["state"] == "active"


def test_what_is_given_while_it_is_being_enabled_is_within_the_ceiling_too(api: Api, weak: Api) -> None:
    """Whoever enables it waits for whoever is giving it a role, and is asked about that role."""
    acme, principal = api.realm, api.realm.principal(state="disabled")
    strong = realm_role(api, "realm.users.suspend")
    answers: list[int] = []
    enabling = threading.Thread(target=lambda: answers.append(weak.post(f"{path_of(principal)}/enable").status_code))
    with acme.database.begin() as connection:
        service_principals.update(connection, acme.cause, principal, role_ids=[strong])
        enabling.start()
        until(lambda: waiting(acme))
    enabling.join(20)
    assert answers == [403]
    assert api.get(path_of(principal)).json()["state"] == "disabled"


def waiting(acme: TestRealm) -> int:
    """How many wait for the row of a service principal."""
    query = (
        "SELECT count(*) AS count FROM pg_stat_activity WHERE datname = current_database()"
        " AND wait_event_type = 'Lock' AND query LIKE '%FROM service_principals%'"
    )
    return int(rows(acme.database, query)[0].count)


# What it may do


def test_a_machine_reads_what_its_roles_let_it_read_and_no_more(api: Api) -> None:
    ada = api.realm.user()
    machine = api.by(api.realm.principal(realm_role(api, "realm.users.read")), mfa=False)
    assert machine.get(f"/users/{ada}").json()["id"] == ada
    assert machine.get("/users").status_code == 200
    problem(machine.get("/roles"), 403, "forbidden")
    problem(machine.get("/settings"), 403, "forbidden")


def test_what_a_role_of_the_realm_lets_it_do_in_organizations_counts_in_all_of_them(api: Api) -> None:
    group = api.realm.group(api.realm.organization())
    machine = api.by(api.realm.principal(realm_role(api, "org.groups.read")))
    assert machine.get(f"/groups/{group}").json()["id"] == group
    assert group in machine.get("/groups", limit=100).text
    problem(machine.get(f"/organizations/{api.realm.organization()}/members"), 403, "forbidden")


def test_a_role_that_is_taken_is_gone_at_the_next_request(api: Api) -> None:
    role = realm_role(api, "realm.users.read")
    principal = made(api, role)
    machine = api.by(principal["id"])
    assert machine.get("/users").status_code == 200
    assert api.patch(path_of(principal["id"]), {"role_ids": []}).status_code == 200
    problem(machine.get("/users"), 403, "forbidden")


def test_a_disabled_machine_is_nobody_until_it_is_enabled_again(api: Api) -> None:
    principal = made(api, realm_role(api, "realm.users.read"))
    machine = api.by(principal["id"])
    assert api.post(f"{path_of(principal['id'])}/disable").json() == {**principal, "state": "disabled"}
    problem(machine.get("/users"), 401, "unauthenticated")
    assert api.post(f"{path_of(principal['id'])}/enable").json() == principal
    assert machine.get("/users").status_code == 200


def test_a_machine_that_holds_everything_changes_nothing_not_even_itself(api: Api) -> None:
    principal = api.realm.principal(realm_role(api, "*"))
    machine, path, ada = api.by(principal), path_of(principal), api.realm.user()
    for answer in (
        machine.post("/users", {"email": "a@example.org", "display_name": "A"}),
        machine.patch(f"/users/{ada}", {"display_name": "B"}),
        machine.post(f"/users/{ada}/suspend"),
        machine.post("/workflows", {"name": unique("workflow")}),
        machine.delete(f"/webhook-subscriptions/{api.realm.subscription()}"),
        machine.patch("/settings", {"extensions": {"workflow_publish_approval": True}}),
        machine.post("/service-principals", {"name": unique("machine")}),
        machine.patch(path, {"name": unique("machine")}),
        machine.post(f"{path}/disable"),
    ):
        assert problem(answer, 403, "forbidden")["detail"] == "This is done by a user."
    assert machine.get(path).json()["state"] == "active"


def test_what_a_machine_s_authority_rests_on_stays_until_its_effect_is_committed(api: Api) -> None:
    """For the routes that take machines: whoever takes the role away waits for what the machine has begun."""
    acme = api.realm
    principal = acme.principal(realm_role(api, "realm.events.write"))
    machine, order = Cause(acme.id, "service_principal", principal), list[str]()

    def take() -> None:
        with acme.database.begin() as connection:
            service_principals.update(connection, acme.cause, principal, role_ids=[])
            order.append("taken")

    taking = threading.Thread(target=take)
    with acme.database.begin() as connection:
        require_still(connection, machine, "realm.events.write")
        taking.start()
        until(lambda: waiting(acme))
        order.append("acted")
    taking.join(20)
    assert order == ["acted", "taken"]
    with acme.database.begin() as connection, pytest.raises(Refused):
        require_still(connection, machine, "realm.events.write")
