"""The story: a company in a realm, and newcomers whose membership starts an onboarding."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

from rich.console import Console

from cli.bootstrap import create_realm
from cli.demo.client import Client
from cli.demo.receivers import Endpoint
from cli.stack import ROOT, Stack
from cli.token import issue
from engine.core.errors import TenureError

EXAMPLE = ROOT / "examples" / "onboarding.json"
WITHIN = 60.0
"""Seconds anything in the story may take before it is told as a failure."""

WORDS = {"succeeded": "green", "failed": "red", "started": "yellow", "pending": "yellow", "approved": "green"}


class StoryFailed(TenureError):
    """Something did not happen in time."""


@dataclass(frozen=True)
class Company:
    """What the story is played with. `admin` and `approver` are their clients."""

    realm_id: str
    admin: Client
    approver: Client
    approver_id: str
    organization_id: str
    role_id: str
    group_id: str
    workflow_id: str

    def close(self) -> None:
        """Close the clients' connections."""
        self.admin.close()
        self.approver.close()


def found(stack: Stack, endpoint: Endpoint, console: Console) -> Company:
    """Make the realm, its people and things, and publish the workflow of the example."""
    realm = create_realm(stack.database, "demo", "root@acme.example", "Root")
    admin = _client(stack, realm.realm_id, realm.admin_id, "admin")
    organization = admin.post("/organizations", {"name": "Acme"})["id"]
    approver_id = admin.post("/users", {"email": "grace@acme.example", "display_name": "Grace"})["id"]
    role = admin.post(
        "/roles",
        {"name": "document-editor", "boundary": "organization", "permissions": ["org.members.read", "org.groups.read"]},
    )["id"]
    group = admin.post("/groups", {"organization_id": organization, "name": "newcomers"})["id"]
    hook = admin.post(
        "/webhook-subscriptions", {"name": "accounts", "url": endpoint.url, "allow_private_network": True}
    )
    endpoint.secret = hook["secret"]
    definition = example(
        {"org": organization, "usr": approver_id, "rol": role, "grp": group, "whk": hook["id"]},
    )
    workflow = admin.post("/workflows", {"name": "Onboarding", "description": "What a new member of Acme gets."})["id"]
    admin.post("/workflows/validate", {"definition": definition})
    number = admin.post(f"/workflows/{workflow}/revisions", {"definition": definition})["number"]
    admin.post(f"/workflows/{workflow}/revisions/{number}/publish")
    console.print(
        f"  published [bold]Onboarding[/bold] revision {number}: {' → '.join(s['id'] for s in definition['steps'])}"
    )
    approver = _client(stack, realm.realm_id, approver_id, "account")
    return Company(realm.realm_id, admin, approver, approver_id, organization, role, group, workflow)


def example(ids: dict[str, str], path: Path = EXAMPLE) -> Any:
    """The example's definition, its placeholder ids replaced by those of the same kind."""

    def replaced(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: replaced(member) for name, member in value.items()}
        if isinstance(value, list):
            return [replaced(member) for member in value]
        if isinstance(value, str) and value[3:4] == "_" and value[:3] in ids:
            return ids[value[:3]]
        return value

    return replaced(json.loads(path.read_text()))


@dataclass(frozen=True)
class Act:
    """One onboarding that was played: the newcomer, and the run as the API tells it at its end."""

    subject_id: str
    email: str
    run: Any


def play(company: Company, name: str, console: Console) -> Act:
    """Add a newcomer to the organization, let the approver approve, and follow the run to its end."""
    email = f"{name.lower()}@acme.example"
    subject = company.admin.post("/users", {"email": email, "display_name": name})["id"]
    told = _Teller(console)
    company.admin.post(f"/organizations/{company.organization_id}/members", {"user_id": subject})
    told.say(f"{name} is added to Acme through the API")
    summary = wait_for(
        lambda: next(iter(company.admin.get("/workflow-runs", subject_id=subject)["items"]), None), "a run"
    )
    told.say(f"the event starts run {summary['id']}")
    run_id = summary["id"]
    approval = wait_for(
        lambda: next(
            (item for item in company.approver.get("/me/workflow-approvals")["items"] if item["subject_id"] == subject),
            None,
        ),
        "an approval to decide",
    )
    told.follow(company.admin.get(f"/workflow-runs/{run_id}"))
    company.approver.post(f"/me/workflow-approvals/{approval['id']}/approve", {"comment": "welcome"})
    told.say("Grace approves with her own account")

    def finished() -> Any:
        run = company.admin.get(f"/workflow-runs/{run_id}")
        told.follow(run)
        return run if run["finished_at"] is not None else None

    run = wait_for(finished, "the end of the run")
    told.say(f"the run ends [bold]{run['state']}[/bold]")
    return Act(subject, email, run)


def wait_for(look: Callable[[], Any], what: str) -> Any:
    """Look until there is something. Raises StoryFailed when there is nothing in time."""
    until = time.monotonic() + WITHIN
    while time.monotonic() < until:
        seen = look()
        if seen is not None:
            return seen
        time.sleep(0.05)
    raise StoryFailed(f"waited {WITHIN:.0f} s for {what}")


class _Teller:
    """Tells each thing once, with the seconds since the act began."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._began_at = time.monotonic()
        self._told: set[tuple[str, ...]] = set()

    def say(self, sentence: str) -> None:
        """One line."""
        self._console.print(f"  {time.monotonic() - self._began_at:6.2f} s  {sentence}")

    def follow(self, run: Any) -> None:
        """What is new in a run: attempts, and what was taken back."""
        for attempt in run["attempts"]:
            state = attempt["state"]
            self._once(
                (attempt["id"], state),
                f"{attempt['step_id']:<8} {attempt['step_type']:<13} attempt {attempt['attempt']}  "
                f"[{WORDS.get(state, 'white')}]{state}[/]{_why(attempt)}",
            )
        for attempt in reversed(run["attempts"]):
            state = attempt["compensation_state"]
            if state in ("done", "failed"):
                self._once(
                    (attempt["id"], "compensation", state),
                    f"{attempt['step_id']:<8} {attempt['step_type']:<13} is taken back  [magenta]{state}[/]",
                )

    def _once(self, key: tuple[str, ...], sentence: str) -> None:
        if key not in self._told:
            self._told.add(key)
            self.say(sentence)


def _why(attempt: Any) -> str:
    return f" ({attempt['error_category']})" if attempt["error_category"] else ""


def _client(stack: Stack, realm_id: str, user_id: str, audience: Literal["admin", "account"]) -> Client:
    token = issue(stack.addresses.data_dir, realm_id, user_id, audience, timedelta(hours=1), audience == "admin")
    return Client(stack.addresses.api, realm_id, token)
