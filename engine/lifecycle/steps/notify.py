"""The step that queues a notice, one message a recipient. Only fixed codes: a workflow cannot send free text."""

from __future__ import annotations

from typing import Literal

from db.statements.bulk import insert_into
from db.tables import Message, table
from engine.core import ids
from engine.core.errors import Refused
from engine.core.ledger import Write
from engine.core.outcomes import Done, Outcome
from engine.lifecycle.facts import RunFact, RunFacts, RunWanted
from engine.lifecycle.steps.approval import Approval
from engine.lifecycle.steps.members import RetriedMembers
from engine.lifecycle.steps.step_type import StepType, organization_for

Notice = Literal[
    "welcome",
    "access_granted",
    "access_expiring",
    "access_removed",
    "approval_requested",
    "account_suspended",
    "offboarding",
]

Recipients = Literal["subject", "approvers", "organization_owners"]


class Notify(RetriedMembers):
    """Queues one message a recipient."""

    type: Literal["notify"]
    notice: Notice
    recipients: Recipients = "subject"


INSERT_MESSAGE = Write(
    40,
    insert_into(table(Message), "realm_id", "id", "run_id", "workflow_id", "step_key", "recipient_id", "notice"),
)


def _approvers(run: RunFact) -> list[str]:
    """Everyone whom an approval step of the definition names, each once."""
    steps = run.plan.definition.steps if run.plan is not None else ()
    return list(dict.fromkeys(user_id for step in steps if isinstance(step, Approval) for user_id in step.approvers))


def wants(step: Notify, realm_id: str, run: RunFact | None, wanted: RunWanted) -> None:
    if run is None:
        return
    if step.recipients == "approvers":
        wanted.directory.watching |= {(realm_id, user_id) for user_id in _approvers(run)}
    elif step.recipients == "organization_owners" and run.organization_id is not None:
        wanted.directory.owners_of.add((realm_id, run.organization_id))


def _recipients(step: Notify, run: RunFact, facts: RunFacts) -> tuple[list[str], list[str]]:
    """Who is meant, and who of them can be written to: the subject in any state, others while they are active."""
    if step.recipients == "subject":
        return [run.subject_id], [run.subject_id]
    if step.recipients == "approvers":
        meant = _approvers(run)
    else:
        meant = sorted(facts.directory.owners.get((run.realm_id, organization_for(None, run)), ()))
    found = facts.directory.users
    return meant, [
        user_id
        for user_id in meant
        if (user := found.get((run.realm_id, user_id))) is not None and user.state == "active"
    ]


def decide(step: Notify, run: RunFact, facts: RunFacts) -> Outcome:
    meant, reached = _recipients(step, run, facts)
    if not meant:
        raise Refused("no_recipients", f"there is nobody among {step.recipients} to write to")
    rows = [
        INSERT_MESSAGE(
            realm_id=run.realm_id,
            id=ids.new(ids.Prefix.MESSAGE),
            run_id=run.id,
            workflow_id=run.workflow_id,
            step_key=run.step_key(step.id),
            recipient_id=user_id,
            notice=step.notice,
        )
        for user_id in reached
    ]
    result = {"message_ids": [row.values["id"] for row in rows]}
    if not rows:
        return Done(False, result)
    return Done(True, result, rows, "impossible", "impossible")


STEP = StepType("notify", Notify, decide, wants=wants)
