"""The main job through the API: a workflow is written, published, started, approved and read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator

import pytest
import rfc8785

from db.session import Database
from engine.lifecycle.worker import Worker
from tests.calling import Api, paths, problem
from tests.definitions import Json, definition, event, id_of, step
from tests.driver import age, approval_of, drain, rows, working
from tests.factories import unique


@pytest.fixture(scope="module")
def worker(module_database: Database) -> Iterator[Worker]:
    with working(module_database) as worker:
        yield worker


def workflow(api: Api, *steps: Json, **members: object) -> str:
    """A published workflow, made through the API."""
    workflow_id = str(api.post("/workflows", {"name": unique("workflow")}).json()["id"])
    staged = api.post(f"/workflows/{workflow_id}/revisions", {"definition": definition(*steps, **members)})  # type: ignore[arg-type]
    assert staged.status_code == 201, staged.text
    published = api.post(f"/workflows/{workflow_id}/revisions/1/publish")
    assert published.status_code == 200, published.text
    return workflow_id


def test_a_workflow_is_made_read_and_changed(api: Api) -> None:
    owner = api.realm.user()
    made = api.post("/workflows", {"name": "Onboarding", "description": "a\nb", "owner_id": owner})
    assert made.status_code == 201
    workflow = made.json()
    assert (workflow["state"], workflow["last_revision"], workflow["owner_id"]) == ("draft", 0, owner)
    assert api.get(f"/workflows/{workflow['id']}").json() == workflow
    changed = api.patch(f"/workflows/{workflow['id']}", {"name": "Joining", "owner_id": None}).json()
    assert (changed["name"], changed["description"], changed["owner_id"]) == ("Joining", "a\nb", None)
    assert changed["updated_at"] > workflow["updated_at"]
    assert workflow["id"] in [each["id"] for each in api.get("/workflows", state="draft").json()["items"]]
    assert workflow["id"] not in [each["id"] for each in api.get("/workflows", state="active").json()["items"]]
    assert paths(api.get("/workflows", state="deleted")) == ["state"]


def test_a_name_is_taken_once(api: Api) -> None:
    first, second = unique("name"), api.realm.workflow()
    assert api.post("/workflows", {"name": first}).status_code == 201
    for answer in (api.post("/workflows", {"name": first}), api.patch(f"/workflows/{second}", {"name": first})):
        assert problem(answer, 409, "conflict")["errors"][0]["path"] == "name"


def test_what_a_person_does_is_audited_with_the_request_id(api: Api) -> None:
    workflow_id = api.call("POST", "/workflows", {"name": unique("name")}, headers={"X-Request-Id": "abc-1"}).json()[
        "id"
    ]
    (audited,) = api.get("/audit-events", target_id=workflow_id).json()["items"]
    assert audited["type"] == "workflow.created"
    assert (audited["actor_type"], audited["actor_id"]) == ("user", api.realm.admin)
    assert audited["request_id"] == "abc-1"


def test_a_revision_gives_back_what_was_staged_and_hashes_its_canonical_bytes(api: Api) -> None:
    workflow_id = api.realm.workflow()
    # Another order of members than the canonical one, and spaces.
    given = (
        '{"definition": {"steps": [{"type": "end", "id": "a"}], "retry": {"backoff": "30s", "max_attempts": 3},'
        ' "schema_version": 1, "triggers": [{"type": "manual"}]}}'
    )
    made = api.post(f"/workflows/{workflow_id}/revisions", content=given, headers={"Content-Type": "application/json"})
    assert made.status_code == 201, made.text
    revision = made.json()
    assert revision["definition"] == json.loads(given)["definition"]
    assert revision["definition_hash"] == hashlib.sha256(rfc8785.dumps(revision["definition"])).hexdigest()
    assert api.get(f"/workflows/{workflow_id}/revisions/1").json() == revision
    checked = api.post("/workflows/validate", {"definition": revision["definition"]}).json()
    assert checked == {"valid": True, "definition_hash": revision["definition_hash"]}
    (summary,) = api.get(f"/workflows/{workflow_id}/revisions").json()["items"]
    assert summary == {name: value for name, value in revision.items() if name != "definition"}


def test_a_definition_that_breaks_rules_is_told_all_of_them_by_path(api: Api) -> None:
    broken = definition(
        step("end", id="a"), step("wait", **{"for": "1s"}, id="a"), step("notify", notice="hello", script="x", id="b")
    )
    for path in ("/workflows/validate", f"/workflows/{api.realm.workflow()}/revisions"):
        assert sorted(paths(api.post(path, {"definition": broken}))) == [
            "definition.steps[1].for",
            "definition.steps[1].id",
            "definition.steps[2].notice",
            "definition.steps[2].script",
        ]
        assert paths(api.post(path, {})) == ["definition"]
        assert paths(api.post(path, {"definition": None})) == ["definition"]
        assert paths(api.post(path, {"definition": []})) == ["definition"]
    (fault,) = problem(
        api.post("/workflows/validate", {"definition": definition(step("assign_role", role_id=id_of("rol")))}),
        422,
        "validation_failed",
    )["errors"][:1]
    assert (fault["path"], fault["code"]) == ("definition.steps[0].role_id", "reference")


def test_publication_names_the_step_beyond_the_publishers_authority(api: Api) -> None:
    role = api.realm.role(None, "realm.workflows.*".replace("*", "publish"), "realm.workflows.write", boundary="realm")
    publisher = api.by(api.realm.holder(role))
    workflow_id = publisher.post("/workflows", {"name": unique("w")}).json()["id"]
    steps = [step("end", id="a"), step("suspend_user", id="b")]
    assert publisher.post(f"/workflows/{workflow_id}/revisions", {"definition": definition(*steps)}).status_code == 201
    answer = publisher.post(f"/workflows/{workflow_id}/revisions/1/publish")
    assert problem(answer, 403, "forbidden")["errors"][0]["path"] == "definition.steps[1]"
    assert api.post(f"/workflows/{workflow_id}/revisions/1/publish").json()["status"] == "published"
    problem(api.post(f"/workflows/{workflow_id}/revisions/1/publish"), 409, "conflict")


def test_a_workflow_that_requires_approval_is_not_published_without_one(api: Api) -> None:
    workflow_id = api.post("/workflows", {"name": unique("w"), "requires_approval": True}).json()["id"]
    api.post(f"/workflows/{workflow_id}/revisions", {"definition": definition()})
    problem(api.post(f"/workflows/{workflow_id}/revisions/1/publish"), 403, "forbidden")


def test_a_run_is_started_once_for_a_key_and_read_with_what_it_did(api: Api, worker: Worker) -> None:
    ada = api.realm.user()
    workflow_id = workflow(api, step("suspend_user", id="a"), step("end", id="b"))
    started = api.post(f"/workflows/{workflow_id}/runs", {"subject_id": ada}, headers={"Idempotency-Key": "key-1"})
    assert started.status_code == 201
    again = api.post(f"/workflows/{workflow_id}/runs", {"subject_id": ada}, headers={"Idempotency-Key": "key-1"})
    assert (again.status_code, again.json()["id"]) == (200, started.json()["id"])
    other = api.post(f"/workflows/{workflow_id}/runs", {"subject_id": ada}, headers={"Idempotency-Key": "key-2"})
    assert other.json()["id"] != started.json()["id"]
    drain(worker, api.realm)
    run = api.get(f"/workflow-runs/{started.json()['id']}").json()
    assert (run["state"], run["starter_id"], run["subject_id"]) == ("succeeded", api.realm.admin, ada)
    assert [(each["step_id"], each["state"]) for each in run["attempts"]] == [("a", "succeeded"), ("b", "succeeded")]
    assert run["attempts"][0]["idempotency_key"] == f"{run['id']}.a"
    assert run["approvals"] == []
    problem(api.post(f"/workflow-runs/{run['id']}/cancel"), 409, "conflict")
    assert api.get(f"/users/{ada}").json()["state"] == "suspended"


def test_runs_are_found_by_what_they_are(api: Api) -> None:
    ada, bob = api.realm.user(), api.realm.user()
    one, two = workflow(api), workflow(api, triggers=[{"type": "manual"}, event("user.reactivated")])
    runs = {
        name: api.post(f"/workflows/{of}/runs", {"subject_id": subject}).json()["id"]
        for name, of, subject in [("one ada", one, ada), ("one bob", one, bob), ("two ada", two, ada)]
    }

    def found(**query: str) -> list[str]:
        ids = [run["id"] for run in api.get("/workflow-runs", **query).json()["items"]]
        return sorted(name for name, id_ in runs.items() if id_ in ids)

    assert found(workflow_id=one) == ["one ada", "one bob"]
    assert found(subject_id=ada) == ["one ada", "two ada"]
    assert found(workflow_id=one, subject_id=ada) == ["one ada"]
    assert found(trigger="manual", state="pending") == sorted(runs)
    assert found(trigger="event") == []
    assert found(state="cancelled") == []
    assert found(since="2020-01-01T00:00:00Z") == sorted(runs)
    assert found(since="2199-01-01T01:00:00+01:00") == []
    for run_id in runs.values():
        assert api.post(f"/workflow-runs/{run_id}/cancel").status_code == 202
        problem(api.post(f"/workflow-runs/{run_id}/cancel"), 409, "conflict")


def test_nobody_starts_a_run_about_themselves_or_one_that_cannot_be_started(api: Api) -> None:
    workflow_id = workflow(api)
    refused = problem(api.post(f"/workflows/{workflow_id}/runs", {"subject_id": api.realm.admin}), 403, "forbidden")
    assert refused["errors"][0]["path"] == "subject_id"
    draft = api.realm.workflow()
    problem(api.post(f"/workflows/{draft}/runs", {"subject_id": api.realm.user()}), 409, "conflict")
    by_event = workflow(api, triggers=[event()])
    problem(api.post(f"/workflows/{by_event}/runs", {"subject_id": api.realm.user()}), 409, "conflict")


def waiting(api: Api, worker: Worker, *approvers: str) -> tuple[str, str, str]:
    """A run that waits for an approval: subject, run, approval."""
    subject = api.realm.user()
    workflow_id = workflow(api, step("approval", approvers=[*approvers]), step("end", id="b"))
    run_id = api.post(f"/workflows/{workflow_id}/runs", {"subject_id": subject}).json()["id"]
    drain(worker, api.realm)
    return subject, run_id, approval_of(api.realm, run_id).id


def test_an_approver_sees_what_is_asked_and_decides_it(api: Api, worker: Worker) -> None:
    eve = api.realm.user()
    subject, run_id, approval_id = waiting(api, worker, eve)
    me = api.by(eve, "account", mfa=False)
    (asked,) = me.get("/me/workflow-approvals").json()["items"]
    assert (asked["id"], asked["subject_id"]) == (approval_id, subject)
    assert asked["workflow_name"].startswith("workflow-")
    decided = me.post(f"/me/workflow-approvals/{approval_id}/approve", {"comment": "welcome"}).json()
    assert (decided["state"], decided["decided_by"], decided["comment"]) == ("approved", eve, "welcome")
    assert me.get("/me/workflow-approvals").json()["items"] == []
    problem(me.post(f"/me/workflow-approvals/{approval_id}/reject"), 409, "conflict")
    drain(worker, api.realm)
    run = api.get(f"/workflow-runs/{run_id}").json()
    assert run["state"] == "succeeded"
    assert [approval["id"] for approval in run["approvals"]] == [approval_id]
    assert approval_id in [each["id"] for each in api.get("/workflow-approvals", state="approved").json()["items"]]


def test_a_rejection_needs_no_body_and_stops_the_run(api: Api, worker: Worker) -> None:
    eve = api.realm.user()
    _, run_id, approval_id = waiting(api, worker, eve)
    assert api.by(eve, "account").post(f"/me/workflow-approvals/{approval_id}/reject").json()["state"] == "rejected"
    drain(worker, api.realm)
    run = api.get(f"/workflow-runs/{run_id}").json()
    assert (run["state"], run["error_category"]) == ("failed", "approval_rejected")


def test_for_everybody_else_an_approval_does_not_exist(api: Api, worker: Worker) -> None:
    eve, guest, suspended = api.realm.user(), api.realm.user(), api.realm.user()
    subject, _, approval_id = waiting(api, worker, eve, guest, suspended)
    api.patch(f"/users/{guest}", {"kind": "guest"})
    missing = problem(api.by(eve, "account").post(f"/me/workflow-approvals/{id_of('wap')}/approve"), 404, "not_found")
    for user in (subject, guest, api.realm.admin, api.realm.user()):
        other = api.by(user, "account")
        assert approval_id not in other.get("/me/workflow-approvals").text
        for verdict in ("approve", "reject"):
            assert problem(other.post(f"/me/workflow-approvals/{approval_id}/{verdict}"), 404, "not_found") == missing
    api.post(f"/users/{suspended}/suspend")
    problem(api.by(suspended, "account").post(f"/me/workflow-approvals/{approval_id}/approve"), 401, "unauthenticated")


def test_an_approval_whose_time_is_over_is_neither_shown_nor_decided(api: Api, worker: Worker) -> None:
    eve = api.realm.user()
    _, run_id, approval_id = waiting(api, worker, eve)
    age(api.realm, run_id, hours=1000)
    me = api.by(eve, "account")
    assert me.get("/me/workflow-approvals").json()["items"] == []
    problem(me.post(f"/me/workflow-approvals/{approval_id}/approve"), 409, "conflict")


def test_a_comment_has_an_end(api: Api, worker: Worker) -> None:
    eve = api.realm.user()
    _, _, approval_id = waiting(api, worker, eve)
    answer = api.by(eve, "account").post(f"/me/workflow-approvals/{approval_id}/approve", {"comment": "x" * 1001})
    assert paths(answer) == ["comment"]
    with api.realm.database.begin():
        states = rows(api.realm.database, "SELECT state FROM workflow_approvals WHERE id = :id", id=approval_id)
    assert [row.state for row in states] == ["pending"]
