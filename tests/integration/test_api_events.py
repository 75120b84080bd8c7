"""Events of an outside directory: taken once, exactly as our own are, and nothing else is changed by them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, get_args

import httpx
import pytest
from sqlalchemy import text

from db.session import Database
from engine.core import ids
from engine.core.errors import Refused
from engine.core.ids import Prefix
from engine.lifecycle import events
from engine.lifecycle.trigger_members import EventType
from engine.lifecycle.worker import Worker
from tests.calling import Api, paths, problem
from tests.definitions import Json, definition, event, id_of, step
from tests.driver import AnyRow, drain, rows, until, working
from tests.factories import REPORTED, TestRealm, a_realm, unique

TYPES: tuple[str, ...] = get_args(EventType)


def report(api: Api, body: Any, key: str | None = None) -> httpx.Response:
    return api.post("/events", body, headers={"Idempotency-Key": key or unique("key")})


def body_for(api: Api, type_: str) -> Json:
    """An event of that type, with all members that belong to it."""
    ada = api.realm.user()
    body: Json = {"type": type_, "user_id": ada}
    if type_.startswith(("organization.", "group.", "role.")):
        body["organization_id"] = api.realm.organization(None, ada)
    if type_.startswith("group."):
        body["group_id"] = api.realm.group(body["organization_id"])
    if type_.startswith("role."):
        body["role_id"] = api.realm.role()
    if type_ == "user.updated":
        body["changed_fields"] = ["display_name", "phone2"]
    return body


def stored(realm: TestRealm, event_id: str) -> AnyRow:
    (row,) = rows(realm.database, "SELECT * FROM outbox_events WHERE id = :id", id=event_id)
    return row


def reported(realm: TestRealm, user_id: str) -> int:
    """How many events about the user are in the outbox, beside that of its creation."""
    query = "SELECT 1 FROM outbox_events WHERE realm_id = :realm AND user_id = :user AND type <> 'user.created'"
    return len(rows(realm.database, query, realm=realm.id, user=user_id))


@pytest.mark.parametrize("type_", TYPES)
def test_an_event_of_every_type_is_taken_with_what_belongs_to_it(api: Api, type_: str) -> None:
    body = body_for(api, type_)
    answer = report(api, body)
    assert answer.status_code == 202, answer.text
    taken = answer.json()
    assert (taken["type"], taken["user_id"], taken["state"]) == (type_, body["user_id"], "waiting")
    assert taken["organization_id"] == body.get("organization_id")
    assert taken["payload"] == {name: value for name, value in body.items() if name not in ("type", "user_id")}
    assert api.get(f"/outbox-events/{taken['id']}").json() == taken


def test_it_is_written_as_an_event_of_our_own_is(api: Api) -> None:
    ada = api.realm.user()
    api.post(f"/users/{ada}/suspend")
    taken = report(api, {"type": "user.suspended", "user_id": ada}).json()
    own, theirs = (
        stored(api.realm, row.id)._asdict()
        for row in rows(
            api.realm.database,
            "SELECT id FROM outbox_events WHERE user_id = :id AND type = 'user.suspended' ORDER BY position",
            id=ada,
        )
    )
    assert theirs["id"] == taken["id"]
    for column in ("id", "position", "created_at", "due_at"):
        own.pop(column), theirs.pop(column)
    assert own == theirs
    assert (own["correlation_id"], own["caused_by_workflow"], own["depth"]) == (None, None, 0)


def test_who_reported_it_is_audited(api: Api) -> None:
    body = body_for(api, "group.membership.added")
    answer = report(api, body)
    (audited,) = api.get("/audit-events", target_id=answer.json()["id"]).json()["items"]
    assert (audited["type"], audited["actor_id"]) == ("event.received", api.realm.admin)
    assert (audited["target_type"], audited["request_id"]) == ("outbox_event", answer.headers["x-request-id"])
    assert audited["details"] == {
        "event_type": body["type"],
        "user_id": body["user_id"],
        "organization_id": body["organization_id"],
        "group_id": body["group_id"],
    }


def test_the_directory_stays_as_it_is(api: Api) -> None:
    ada, sales = api.realm.user(), api.realm.organization()
    before = api.get(f"/users/{ada}").json()
    for body in (
        {"type": "user.suspended", "user_id": ada},
        {"type": "organization.membership.added", "user_id": ada, "organization_id": sales},
        {"type": "role.assignment.granted", "user_id": ada, "role_id": api.realm.role(boundary="realm")},
    ):
        assert report(api, body).status_code == 202
    assert api.get(f"/users/{ada}").json() == before
    assert api.get(f"/organizations/{sales}/members").json()["items"] == []
    assert api.get("/role-assignments", user_id=ada).json()["items"] == []


def test_a_workflow_that_listens_starts_a_run_for_its_user_and_organization(api: Api, worker: Worker) -> None:
    here, elsewhere = api.realm.organization(), api.realm.organization()
    listening = event("organization.membership.removed", organization_id=here)
    workflow = api.realm.published(definition(step("end"), triggers=[listening]))
    ada = api.realm.user()
    body = {"type": "organization.membership.removed", "user_id": ada, "organization_id": here}
    taken = report(api, body).json()
    report(api, {**body, "organization_id": elsewhere})
    drain(worker, api.realm)
    (run,) = api.get("/workflow-runs", workflow_id=workflow).json()["items"]
    assert (run["subject_id"], run["organization_id"], run["event_id"]) == (ada, here, taken["id"])
    assert (run["event_type"], run["depth"], run["state"]) == (body["type"], 0, "succeeded")
    assert api.get(f"/outbox-events/{taken['id']}").json()["state"] == "dispatched"


def test_it_ends_the_wait_of_an_idle_worker(api: Api) -> None:
    ada = api.realm.user()
    with working(api.realm.database, poll_interval=60) as worker:
        drain(worker, api.realm)
        reporting = threading.Timer(0.2, report, (api, {"type": "user.suspended", "user_id": ada}))
        reporting.start()
        began = time.monotonic()
        worker.wait(threading.Event())
        assert time.monotonic() - began < 30
        reporting.join()


# what belongs to an event


ALL: Json = {
    "organization_id": id_of("org"),
    "group_id": id_of("grp"),
    "role_id": id_of("rol"),
    "changed_fields": ["email"],
}
NEEDED = {
    "organization.membership.added": {"organization_id"},
    "organization.membership.removed": {"organization_id"},
    "group.membership.added": {"organization_id", "group_id"},
    "group.membership.removed": {"organization_id", "group_id"},
    "role.assignment.granted": {"role_id"},
    "role.assignment.revoked": {"role_id"},
    "role.assignment.expired": {"role_id"},
    "user.updated": {"changed_fields"},
}
ALLOWED = {
    type_: needed | ({"organization_id"} if type_.startswith("role.") else set()) for type_, needed in NEEDED.items()
}


def told(answer: httpx.Response) -> dict[str, str]:
    """Path -> code of each fault."""
    return {error["path"]: error["code"] for error in problem(answer, 422, "validation_failed")["errors"]}


@pytest.mark.parametrize("type_", TYPES)
def test_a_member_that_belongs_to_another_type_is_unknown_and_one_that_is_missing_is_required(
    api: Api, type_: str
) -> None:
    strange = {name: value for name, value in ALL.items() if name not in ALLOWED.get(type_, set())}
    whole = strange | body_for(api, type_)
    assert told(report(api, whole)) == dict.fromkeys(strange, "unknown_member")
    bare = {"type": type_, "user_id": whole["user_id"]}
    if NEEDED.get(type_):
        assert told(report(api, bare)) == dict.fromkeys(NEEDED[type_], "required")
    else:
        assert report(api, bare).status_code == 202
    assert told(report(api, {"type": type_, "script": 1})).items() >= {
        ("user_id", "required"),
        ("script", "unknown_member"),
    }


def test_an_event_has_a_known_type_and_a_user(api: Api) -> None:
    ada = api.realm.user()
    assert told(report(api, {})) == {"type": "required", "user_id": "required"}
    strange: list[Any] = ["user.signed_in", "user.created\n", "USER.CREATED", "", None, 5, ["user.created"], {}]
    for type_ in strange:
        assert told(report(api, {"type": type_, "user_id": ada})) == {"type": "one_of"}, type_
    for user_id in (None, "", "usr_x", ada.upper(), f"{ada}\n", 5, [ada]):
        assert list(told(report(api, {"type": "user.created", "user_id": user_id}))) == ["user_id"], user_id


@pytest.mark.parametrize(
    "fields",
    [[], ["f"] * 21, ["Email"], [""], ["a b"], ["email\n"], ["_a"], ["x" * 41], [None], [5], "email", None, {"a": 1}],
    ids=str,
)
def test_the_changed_fields_are_one_to_twenty_short_words(api: Api, fields: Any) -> None:
    body = {"type": "user.updated", "user_id": api.realm.user()}
    assert paths(report(api, {**body, "changed_fields": fields}))[0].startswith("changed_fields")
    assert report(api, {**body, "changed_fields": ["x" * 40] * 20}).status_code == 202


def test_a_role_assignment_without_an_organization_is_one_of_the_realm(api: Api) -> None:
    body = {"type": "role.assignment.revoked", "user_id": api.realm.user(), "role_id": api.realm.role(boundary="realm")}
    for given in (body, {**body, "organization_id": None}):
        taken = report(api, given)
        assert taken.status_code == 202
        assert taken.json()["organization_id"] is None
        assert taken.json()["payload"] == {"role_id": body["role_id"], "organization_id": None}


# what it names must be there


REFERENCES = [
    ("user.created", "user_id"),
    ("organization.membership.added", "user_id"),
    ("organization.membership.added", "organization_id"),
    ("group.membership.removed", "organization_id"),
    ("group.membership.removed", "group_id"),
    ("role.assignment.granted", "role_id"),
    ("role.assignment.granted", "organization_id"),
]


@pytest.mark.parametrize(("type_", "member"), REFERENCES)
def test_what_another_realm_has_is_answered_as_what_nobody_has(api: Api, type_: str, member: str) -> None:
    body, other = body_for(api, type_), a_realm(api.realm.database)
    theirs = body_for(Api(api.client, other, None, other.id), type_)[member]
    answers = [report(api, {**body, member: id_}) for id_ in (theirs, ids.new(Prefix(theirs[:3])))]
    refused = problem(answers[0], 404, "not_found")
    assert refused == problem(answers[1], 404, "not_found")
    assert [error["path"] for error in refused["errors"]] == [member]
    assert reported(api.realm, body["user_id"]) == (1 if body.get("organization_id") else 0), "the membership alone"


def test_a_user_who_is_gone_an_archived_organization_and_the_group_of_another_one_are_not_there(api: Api) -> None:
    gone = api.realm.user(state="deleted")
    problem(report(api, {"type": "user.suspended", "user_id": gone}), 404, "not_found")
    body = body_for(api, "group.membership.added")
    archived, other = api.realm.organization(state="archived"), api.realm.organization()
    for changed, path in (
        ({"organization_id": archived}, "organization_id"),
        ({"organization_id": other}, "group_id"),
        ({"group_id": api.realm.group(other)}, "group_id"),
    ):
        refused = problem(report(api, {**body, **changed}), 404, "not_found")
        assert [error["path"] for error in refused["errors"]] == [path]
    suspended = api.realm.user(state="suspended")
    assert report(api, {"type": "user.reactivated", "user_id": suspended}).status_code == 202


# once a key


def test_a_key_is_needed(api: Api) -> None:
    body = {"type": "user.suspended", "user_id": api.realm.user()}
    assert told(api.post("/events", body)) == {"Idempotency-Key": "required"}
    for key in ("", "a b", "x" * 129, "é".encode()):
        assert paths(api.post("/events", body, headers={"Idempotency-Key": key})) == ["Idempotency-Key"], key
    assert reported(api.realm, body["user_id"]) == 0


def test_the_same_event_under_the_same_key_is_taken_once(api: Api, worker: Worker) -> None:
    ada, key = api.realm.user(), unique("key")
    body = {"type": "user.suspended", "user_id": ada}
    first = report(api, body, key)
    assert first.status_code == 202
    again = report(api, body, key)
    assert (again.status_code, again.json()) == (200, first.json())
    drain(worker, api.realm)
    late = report(api, {"user_id": ada, "type": "user.suspended"}, key)
    assert (late.status_code, late.json()["id"]) == (200, first.json()["id"])
    assert late.json()["state"] == "dispatched"
    assert reported(api.realm, ada) == 1
    assert len(api.get("/audit-events", target_id=first.json()["id"]).json()["items"]) == 1


def test_another_event_under_the_same_key_is_refused(api: Api) -> None:
    ada, key = api.realm.user(), unique("key")
    assert report(api, {"type": "user.suspended", "user_id": ada}, key).status_code == 202
    for body in (
        {"type": "user.reactivated", "user_id": ada},
        {"type": "user.suspended", "user_id": api.realm.user()},
        {"type": "user.updated", "user_id": ada, "changed_fields": ["email"]},
    ):
        assert paths(report(api, body, key)) == ["Idempotency-Key"]
    assert reported(api.realm, ada) == 1


def test_a_key_belongs_to_who_chose_it_and_a_refusal_uses_none_up(api: Api) -> None:
    ada, key = api.realm.user(), unique("key")
    machine = api.by(api.realm.principal(api.realm.role(None, "realm.events.write", boundary="realm")))
    problem(report(api, {"type": "user.suspended", "user_id": ids.new(Prefix.USER)}, key), 404, "not_found")
    body = {"type": "user.suspended", "user_id": ada}
    taken = [report(caller, body, key) for caller in (api, machine)]
    assert [answer.status_code for answer in taken] == [202, 202]
    assert taken[0].json()["id"] != taken[1].json()["id"]


def test_a_key_that_is_in_use_is_told_so(api: Api) -> None:
    ada, key = api.realm.user(), unique("key")
    body = {"type": "user.suspended", "user_id": ada}
    with api.realm.database.begin() as connection:
        event_id, _ = events.receive(connection, api.realm.cause, key, REPORTED.validate_python(body))
        refused = problem(report(api, body, key), 409, "conflict")
        assert [error["path"] for error in refused["errors"]] == ["Idempotency-Key"]
    again = report(api, body, key)
    assert (again.status_code, again.json()["id"]) == (200, event_id)


def test_of_many_at_once_under_one_key_one_is_taken(api: Api) -> None:
    ada = api.realm.user()
    body = {"type": "user.suspended", "user_id": ada}
    with ThreadPoolExecutor(12) as threads:
        for count in range(1, 6):
            key = unique("key")
            answers = list(threads.map(lambda _, key=key: report(api, body, key), range(12)))
            assert sorted({answer.status_code for answer in answers} - {200, 409}) == [202]
            assert len({answer.json()["id"] for answer in answers if answer.status_code < 300}) == 1
            assert reported(api.realm, ada) == count


# who may


def test_a_service_principal_may_report_if_its_role_says_so(api: Api) -> None:
    ada = api.realm.user()
    body = {"type": "user.suspended", "user_id": ada}
    principal = api.realm.principal(api.realm.role(None, "realm.events.write", boundary="realm"))
    taken = report(api.by(principal), body)
    assert taken.status_code == 202
    (audited,) = api.get("/audit-events", target_id=taken.json()["id"]).json()["items"]
    assert (audited["actor_type"], audited["actor_id"]) == ("service_principal", principal)
    other = api.realm.principal(api.realm.role(None, "realm.audit.read", "realm.users.write", boundary="realm"))
    problem(report(api.by(other), body), 403, "forbidden")
    problem(report(api.by(api.realm.principal()), body), 403, "forbidden")
    assert reported(api.realm, ada) == 1


LOSSES: dict[str, tuple[str, str]] = {
    "a user": (
        "SELECT 1 FROM users WHERE id = :id FOR NO KEY UPDATE",
        "DELETE FROM role_assignments WHERE user_id = :id",
    ),
    "a service principal": (
        "SELECT 1 FROM service_principals WHERE id = :id FOR NO KEY UPDATE",
        "UPDATE service_principals SET state = 'disabled' WHERE id = :id",
    ),
}


@pytest.mark.parametrize("known", [False, True], ids=["a new key", "a key that was used"])
@pytest.mark.parametrize("who", LOSSES)
def test_authority_that_goes_while_an_event_is_taken_is_not_used(api: Api, who: str, known: bool) -> None:
    role, ada, key = api.realm.role(None, "realm.events.write", boundary="realm"), api.realm.user(), unique("key")
    late = api.realm.holder(role) if who == "a user" else api.realm.principal(role)
    body = {"type": "user.suspended", "user_id": ada}
    if known:
        assert report(api.by(late), body, key).status_code == 202
    answers: list[httpx.Response] = []
    request = threading.Thread(target=lambda: answers.append(report(api.by(late), body, key)))
    with api.realm.database.begin() as connection:
        for statement in LOSSES[who]:
            connection.execute(text(statement), {"id": late})
        request.start()
        until(lambda: somebody_waits(api.realm.database), within=20)
    request.join(30)
    problem(answers[0], 403, "forbidden")
    assert reported(api.realm, ada) == int(known)


def somebody_waits(database: Database) -> bool:
    query = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    with database.owner_engine.connect() as connection:
        return bool(connection.execute(text(query)).all())


def test_the_verb_itself_refuses_what_the_realm_does_not_have(acme: TestRealm) -> None:
    far = a_realm(acme.database)
    refusals: list[tuple[Callable[[], str], str]] = [
        (far.user, "user_id"),
        (lambda: acme.user(state="deleted"), "user_id"),
    ]
    for user, path in refusals:
        with pytest.raises(Refused) as refused:
            acme.event("user.suspended", user())
        assert (refused.value.category, refused.value.path) == ("not_found", path)


def test_nobody_reports_an_event_about_themselves(api: Api) -> None:
    """It would start runs about them: a way round the rule that nobody starts a run about themselves."""
    role = api.realm.role(None, "realm.events.write", boundary="realm")
    eve = api.realm.holder(role)
    before = reported(api.realm, eve)
    refused = problem(report(api.by(eve), {"type": "user.suspended", "user_id": eve}), 403, "forbidden")
    assert [error["path"] for error in refused["errors"]] == ["user_id"]
    assert reported(api.realm, eve) == before
