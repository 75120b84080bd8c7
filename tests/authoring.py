"""Workflows written and steered through the API, by whoever `caller` is.

flow = published(boss, step("suspend_user"))     a workflow with a published revision
number = staged(boss, flow, step("end"))         one more revision
asked(boss, "roll_back", flow, 1)                any verb of a workflow or of a revision of it
trail(acme, flow)                                what was audited of the workflow
"""

from __future__ import annotations

from typing import Any

import httpx

from tests.calling import Api
from tests.definitions import Json, definition
from tests.driver import AnyRow, rows
from tests.factories import TestRealm, unique


def done(answer: httpx.Response, status: int = 200) -> Json:
    """The body of an answer that must have this status."""
    assert answer.status_code == status, answer.text
    body: Json = answer.json() if answer.content else {}
    return body


def workflow(caller: Api, **members: object) -> str:
    """A workflow without a revision. Returns its id."""
    return str(done(caller.post("/workflows", {"name": unique("workflow"), **members}), 201)["id"])


def staged(caller: Api, workflow_id: str, *steps: Json, **members: Any) -> int:
    """A draft revision with these steps. Returns its number."""
    answer = caller.post(f"/workflows/{workflow_id}/revisions", {"definition": definition(*steps, **members)})
    return int(done(answer, 201)["number"])


def published(caller: Api, *steps: Json, **members: Any) -> str:
    """A workflow with a published revision of these steps. Returns its id."""
    workflow_id = workflow(caller)
    done(asked(caller, "publish", workflow_id, staged(caller, workflow_id, *steps, **members)))
    return workflow_id


def started(caller: Api, workflow_id: str, subject_id: str, organization_id: str | None = None) -> str:
    """A run started by hand. Returns its id."""
    body = {"subject_id": subject_id} | ({} if organization_id is None else {"organization_id": organization_id})
    return str(done(caller.post(f"/workflows/{workflow_id}/runs", body), 201)["id"])


def asked(caller: Api, verb: str, workflow_id: str, number: int = 1) -> httpx.Response:
    """A verb of the state tables, as the API has it."""
    match verb:
        case "delete":
            return caller.delete(f"/workflows/{workflow_id}")
        case "disable" | "enable":
            return caller.post(f"/workflows/{workflow_id}/{verb}")
        case "roll_back":
            return caller.post(f"/workflows/{workflow_id}/rollback", {"revision": number})
        case _:
            return caller.post(f"/workflows/{workflow_id}/revisions/{number}/{verb}")


def shown(caller: Api, workflow_id: str) -> Json:
    """The workflow as the API shows it."""
    return done(caller.get(f"/workflows/{workflow_id}"))


def status_of(caller: Api, workflow_id: str, number: int) -> str:
    """The status of a revision."""
    return str(done(caller.get(f"/workflows/{workflow_id}/revisions/{number}"))["status"])


def trail(realm: TestRealm, workflow_id: str) -> list[AnyRow]:
    """What was audited of a workflow, in the order in which it was written."""
    query = "SELECT * FROM audit_events WHERE realm_id = :realm AND target_id = :id ORDER BY position"
    return rows(realm.database, query, realm=realm.id, id=workflow_id)


def rights(realm: TestRealm, *permissions: str) -> str:
    """A user who holds these, realm-wide."""
    return realm.holder(realm.role(None, *permissions, boundary="realm"))
