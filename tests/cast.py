"""The people among whom duties are separated, and what they are told: by the API in an answer, by a run in what becomes of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

import httpx

from engine.lifecycle.worker import Worker
from tests.calling import ISSUER, Api, problem
from tests.definitions import Json, definition
from tests.driver import drain, outcome, owner
from tests.factories import unique

Told = tuple[int | str, str | None, str | None]
"""Of an answer: status, code and the path it names. Of a run: its state and the category."""


@dataclass
class Cast:
    """The people of the table. From the author to the machine all are administrators who could do anything by hand."""

    api: Api
    worker: Worker
    author: str = field(init=False)
    publisher: str = field(init=False)
    starter: str = field(init=False)
    subject: str = field(init=False)
    other: str = field(init=False)
    """Another administrator."""
    suspended: str = field(init=False)
    """An administrator who is."""
    machine: str = field(init=False)
    """A service principal with an administrator's role."""
    decider: str = field(init=False)
    """May assign the role in sales, and holds what it has."""
    approver: str = field(init=False)
    """A user like any."""
    runner: str = field(init=False)
    """May start runs, and nothing else."""
    sales: str = field(init=False)
    role: str = field(init=False)
    """Requires approval."""

    def __post_init__(self) -> None:
        acme = self.api.realm
        everything = acme.roles["realm-admin"]
        for name in ("author", "publisher", "starter", "subject", "other", "suspended"):
            setattr(self, name, acme.holder(everything))
        self.sales = acme.organization(None, self.subject, self.publisher)
        owner(
            acme.database,
            "UPDATE users SET state = 'suspended', suspended_at = now() WHERE id = :id",
            id=self.suspended,
        )
        self.machine = acme.principal(everything)
        self.role = acme.role(None, "org.members.read", requires_approval=True)
        self.decider, self.approver = self.a_decider(), acme.user()
        self.runner = acme.holder(acme.role(None, "realm.workflows.run", boundary="realm"))

    def a_decider(self, *permissions: str) -> str:
        """A member of sales who holds there what it takes to give the role, or these permissions."""
        acme = self.api.realm
        return acme.holder(acme.role(None, *(permissions or ("org.roles.assign", "org.members.read"))), self.sales)

    def by(self, who: str) -> Api:
        """The administration, called by whoever has that part or that id."""
        id_ = getattr(self, who, who)
        if who == "machine":
            token = ISSUER.issue(self.api.realm.id, id_, "admin", timedelta(minutes=5), mfa=False)
            return self.api.with_token(token)
        return self.api.by(id_)

    def workflow(self, *steps: Json, by: str = "author", **members: object) -> str:
        """A workflow with that definition as its first revision, staged by the author."""
        workflow_id = str(ok(self.by(by).post("/workflows", {"name": unique("w"), **members})).json()["id"])
        self.stage(workflow_id, *steps, by=by)
        return workflow_id

    def stage(self, workflow_id: str, *steps: Json, by: str = "author") -> None:
        """Another revision."""
        ok(self.by(by).post(f"/workflows/{workflow_id}/revisions", {"definition": definition(*steps)}))

    def published(self, *steps: Json) -> str:
        """The same, published by the publisher."""
        workflow_id = self.workflow(*steps)
        ok(self.by("publisher").post(f"/workflows/{workflow_id}/revisions/1/publish"))
        return workflow_id

    def start(self, workflow_id: str, who: str, about: str) -> httpx.Response:
        """A run about somebody, in sales."""
        body = {"subject_id": getattr(self, about, about), "organization_id": self.sales}
        return self.by(who).post(f"/workflows/{workflow_id}/runs", body)

    def run(self, *steps: Json, about: str = "subject") -> str:
        """A run of these steps, published by the publisher, started by the starter, as far as it goes."""
        run_id = str(ok(self.start(self.published(*steps), "starter", about)).json()["id"])
        drain(self.worker, self.api.realm)
        return run_id

    def became(self, run_id: str) -> Told:
        """What has become of a run by now."""
        drain(self.worker, self.api.realm)
        return (*outcome(self.api.realm, run_id), None)


def ok(answer: httpx.Response) -> httpx.Response:
    assert answer.is_success, answer.text
    return answer


def told(answer: httpx.Response) -> Told:
    if answer.is_success:
        return answer.status_code, None, None
    body = answer.json()
    problem(answer, answer.status_code, body["code"])
    return answer.status_code, body["code"], body.get("errors", [{"path": None}])[0]["path"]
