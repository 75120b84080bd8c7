"""The step that parks a run until one of the named approvers decides, or the time is up."""

from __future__ import annotations

from typing import Annotated, Literal

from db.statements.bulk import insert_into, update_rows
from db.tables import Approval as ApprovalRow
from db.tables import table
from engine.core import ids
from engine.core.durations import Duration, between
from engine.core.errors import Refused
from engine.core.ids import UserId
from engine.core.ledger import Row, Write
from engine.core.outcomes import Done, Outcome, Parked
from engine.core.trail import audit
from engine.lifecycle.facts import ApprovalFact, RunFact, RunFacts, RunWanted
from engine.lifecycle.members import UNIQUE, Items
from engine.lifecycle.states import APPROVAL
from engine.lifecycle.steps.members import StepMembers
from engine.lifecycle.steps.step_type import StepType


class Approval(StepMembers):
    """Parks until decided."""

    type: Literal["approval"]
    approvers: Annotated[tuple[UserId, ...], *UNIQUE, Items(1, 10)]
    expires_in: Annotated[Duration, between("1m", "720h")]


INSERT_APPROVAL = Write(
    41,
    insert_into(
        table(ApprovalRow),
        "realm_id",
        "id",
        "run_id",
        "workflow_id",
        "step_index",
        "step_id",
        "subject_id",
        "organization_id",
        "approvers",
        "expires_at",
    ),
)
END_APPROVAL = Write(
    42,
    update_rows(table(ApprovalRow), ["realm_id", "id"], ["state", "ended_at"], "workflow_approvals.state = 'pending'"),
)


def wants(step: Approval, realm_id: str, run: RunFact | None, wanted: RunWanted) -> None:
    if run is not None:
        wanted.directory.watching |= {(realm_id, user_id) for user_id in step.approvers}


def decide(step: Approval, run: RunFact, facts: RunFacts) -> Outcome:
    if run.attempt is None or run.attempt.state != "started":
        return _ask(step, run, facts)
    approval = facts.approvals.get((run.realm_id, run.id, run.step_index))
    if approval is None:
        raise Refused("approval_missing", f"the approval of step {step.id} is not there")
    match approval.state:
        case "approved":
            result = {"approval_id": approval.id, "decided_by": approval.decided_by}
            return Done(True, result, context={"approver": approval.decided_by})
        case "rejected":
            raise Refused("approval_rejected", f"the approval {approval.id} was rejected")
        case "pending" if facts.now < approval.expires_at:
            return Parked("ask", approval.expires_at)
        case _:
            raise Refused("approval_expired", f"the approval {approval.id} was not decided in time")


def _ask(step: Approval, run: RunFact, facts: RunFacts) -> Outcome:
    """Parks the run with an approval, if anyone can decide it (source: the subject never; guests and suspended users not)."""
    users = facts.directory.users
    eligible = [
        user_id
        for user_id in step.approvers
        if user_id != run.subject_id and (user := users.get((run.realm_id, user_id))) is not None and user.can_approve
    ]
    if not eligible:
        raise Refused("no_eligible_approver", f"nobody named in step {step.id} may decide about this subject")
    approval_id, until = ids.new(ids.Prefix.APPROVAL), facts.now + step.expires_in.timedelta
    rows = [
        INSERT_APPROVAL(
            realm_id=run.realm_id,
            id=approval_id,
            run_id=run.id,
            workflow_id=run.workflow_id,
            step_index=run.step_index,
            step_id=step.id,
            subject_id=run.subject_id,
            organization_id=run.organization_id,
            approvers=[user_id for user_id in step.approvers if user_id != run.subject_id],
            expires_at=until,
        ),
        audit(
            run.cause,
            "workflow.approval.requested",
            ("approval", approval_id),
            {"run_id": run.id, "step_id": step.id, "expires_at": until.isoformat()},
            category="authorization",
        ),
    ]
    return Parked("ask", until, rows)


def end_pending(run: RunFact, approval: ApprovalFact, event: str, facts: RunFacts) -> list[Row]:
    """The rows that end a pending approval without a decision: `expire` (audited, by the system) or `cancel` (not audited)."""
    rows = [
        END_APPROVAL(
            realm_id=run.realm_id, id=approval.id, state=APPROVAL.move(approval.state, event), ended_at=facts.now
        )
    ]
    if event == "expire":
        details = {"run_id": run.id}
        target = ("approval", approval.id)
        rows.append(audit(run.system_cause, "workflow.approval.expired", target, details, category="authorization"))
    return rows


STEP = StepType("approval", Approval, decide, wants=wants, acts=False)
