"""One guard: publication, rollback, enabling and a start by hand are all refused to whoever could not do every step, with one
code and of one step (FAULTS.md, 17)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import httpx
import pytest

from db.session import Database
from engine.directory.commands import assignments, users
from tests.calling import Api, an_api, problem
from tests.definitions import Json, definition, step
from tests.driver import rows, until
from tests.factories import TestRealm, unique
from tests.stops import waiting, watching

GUARDED: dict[str, Callable[[Api, Ready], httpx.Response]] = {
    "publish": lambda api, it: api.post(f"/workflows/{it.active}/revisions/3/publish"),
    "rollback": lambda api, it: api.post(f"/workflows/{it.active}/rollback", {"revision": 1}),
    "enable": lambda api, it: api.post(f"/workflows/{it.disabled}/enable"),
    "start": lambda api, it: api.post(f"/workflows/{it.active}/runs", {"subject_id": it.subject}),
}


@dataclass(frozen=True)
class Ready:
    """Workflows of a strong administrator's: one with a superseded, a published and a staged revision, and one disabled."""

    active: str
    disabled: str
    subject: str


@pytest.fixture(scope="module")
def api(module_database: Database) -> Iterator[Api]:
    with an_api(module_database) as api:
        yield api


def ready(api: Api, *steps: Json) -> Ready:
    found = []
    for published, staged in ((2, 3), (1, 1)):
        workflow_id = api.post("/workflows", {"name": unique("w")}).json()["id"]
        for number in range(1, staged + 1):
            body = {"definition": definition(*steps)}
            assert api.post(f"/workflows/{workflow_id}/revisions", body).status_code == 201
            if number <= published:
                assert api.post(f"/workflows/{workflow_id}/revisions/{number}/publish").status_code == 200
        found.append(str(workflow_id))
    assert api.post(f"/workflows/{found[1]}/disable").json()["state"] == "disabled"
    return Ready(found[0], found[1], api.realm.user())


def as_it_is(api: Api, it: Ready) -> list[object]:
    """All that a refusal must leave alone."""
    shown = [api.get(f"/workflows/{each}").json() for each in (it.active, it.disabled)]
    revisions = [api.get(f"/workflows/{each}/revisions").json() for each in (it.active, it.disabled)]
    return [*shown, *revisions, api.get("/workflow-runs", subject_id=it.subject).json()]


RUNS = ("realm.workflows.publish", "realm.workflows.run")


def stronger(acme: TestRealm) -> str:
    return acme.role(None, "org.members.write")


def team_with_a_stronger_parent(acme: TestRealm) -> str:
    sales = acme.organization()
    return acme.group(sales, parent=acme.group(sales, roles=[stronger(acme)]))


LEFT_OPEN = {"organization_id": ..., "expires_in": ...}

WEAK: dict[str, tuple[Callable[[TestRealm], list[Json]], tuple[str, ...], str, int]] = {
    "may not assign roles": (
        lambda acme: [step("assign_role", role_id=stronger(acme), **LEFT_OPEN)],
        ("org.members.write",),
        "forbidden",
        0,
    ),
    "does not hold what the role has": (
        lambda acme: [step("assign_role", role_id=stronger(acme), **LEFT_OPEN)],
        ("org.roles.assign",),
        "grant_ceiling_exceeded",
        0,
    ),
    "may not take such a role away": (
        lambda acme: [step("suspend_user", id="s"), step("remove_role", role_id=stronger(acme), scope="organization")],
        ("org.roles.assign", "realm.users.suspend"),
        "grant_ceiling_exceeded",
        1,
    ),
    "does not hold what the group's parent grants": (
        lambda acme: [step("add_to_group", group_id=team_with_a_stronger_parent(acme), **LEFT_OPEN)],
        ("org.groups.write", "org.roles.assign"),
        "grant_ceiling_exceeded",
        0,
    ),
    "may not change groups": (
        lambda acme: [
            step("wait", id="w"),
            step("remove_from_group", group_id=acme.group(acme.organization()), **LEFT_OPEN),
        ],
        ("org.roles.assign", "org.members.write"),
        "forbidden",
        1,
    ),
    "may not end memberships": (
        lambda acme: [
            step("wait", id="w"),
            step("suspend_user", id="s"),
            step("remove_membership", organization_id=...),
        ],
        ("realm.users.suspend", "org.members.read"),
        "forbidden",
        2,
    ),
    "may not suspend": (lambda acme: [step("suspend_user")], ("realm.users.write",), "forbidden", 0),
    "may not call endpoints": (
        lambda acme: [step("end", id="e"), step("call_webhook", subscription_id=acme.subscription())],
        ("realm.webhooks.read",),
        "forbidden",
        1,
    ),
}
"""Why a step is beyond somebody: the steps, what they do hold, what they are told, and of which step."""


@pytest.mark.parametrize("why", WEAK)
def test_all_four_refuse_whoever_could_not_do_every_step_and_say_the_same(api: Api, why: str) -> None:
    steps, held, code, index = WEAK[why]
    it = ready(api, *steps(api.realm))
    weak = api.by(api.realm.holder(api.realm.role(None, *RUNS, *held, boundary="realm")))
    before = as_it_is(api, it)
    bodies = [problem(call(weak, it), 403, code) for call in GUARDED.values()]
    assert bodies == bodies[:1] * 4
    assert [error["path"] for error in bodies[0]["errors"]] == [f"definition.steps[{index}]"]
    assert as_it_is(api, it) == before
    assert [call(api, it).status_code for call in GUARDED.values()] == [200, 200, 200, 201]


def test_all_four_refuse_whoever_may_not_do_the_thing_itself(api: Api) -> None:
    it, acme = ready(api), api.realm
    for held, refused in (
        ("realm.workflows.run", ["publish", "rollback", "enable"]),
        ("realm.workflows.publish", ["start"]),
        ("realm.workflows.write", list(GUARDED)),
    ):
        weak = api.by(acme.holder(acme.role(None, held, boundary="realm")))
        for name in refused:
            assert "errors" not in problem(GUARDED[name](weak, it), 403, "forbidden")


def test_a_start_by_hand_is_checked_in_the_organization_that_it_names(api: Api) -> None:
    acme = api.realm
    ada = acme.user()
    sales, other = acme.organization(None, ada), acme.organization(None, ada)
    it = ready(api, step("remove_membership", organization_id=...))
    starter = acme.holder(acme.role(None, *RUNS, boundary="realm"))
    acme.add_members(sales, [starter])
    acme.grant(starter, acme.roles["org-admin"], sales)

    def start(**body: str) -> httpx.Response:
        return api.by(starter).post(f"/workflows/{it.active}/runs", {"subject_id": ada, **body})

    for answer in (start(), start(organization_id=other), GUARDED["publish"](api.by(starter), it)):
        assert problem(answer, 403, "forbidden")["errors"][0]["path"] == "definition.steps[0]"
    assert start(organization_id=sales).status_code == 201


@pytest.mark.parametrize("name", GUARDED)
@pytest.mark.parametrize("loss", ["the role is revoked", "the user is suspended"])
def test_all_four_wait_for_a_loss_that_is_under_way_and_then_refuse(api: Api, name: str, loss: str) -> None:
    """What a caller might do as the request came in counts for nothing: it is asked again under the locks of the effect."""
    acme = api.realm
    it = ready(api, step("suspend_user"))
    weak = acme.holder(acme.role(None, *RUNS, boundary="realm"))
    held = acme.grant(weak, acme.role(None, "realm.users.suspend", boundary="realm"))
    before = as_it_is(api, it)
    with ThreadPoolExecutor(1) as thread, watching(acme.database) as watch:
        with acme.database.begin() as connection:
            if loss == "the role is revoked":
                assignments.revoke(connection, acme.cause, held)
            else:
                users.suspend(connection, acme.cause, weak)
            call = thread.submit(GUARDED[name], api.by(weak), it)
            until(lambda: waiting(watch, "tests"))
        problem(call.result(30), 403, "forbidden")
    assert as_it_is(api, it) == before
    assert rows(acme.database, "SELECT 1 FROM workflow_runs WHERE starter_id = :weak", weak=weak) == []
