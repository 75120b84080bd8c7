"""Approvals as people decide them. Eligibility is asked again at the moment of the decision."""

from __future__ import annotations

from typing import Literal

from sqlalchemy import Connection

from db.statements import run_changes
from db.statements.outbox import notify
from db.statements.runs import now
from engine.core.errors import Refused
from engine.core.trail import Cause, audit
from engine.directory.facts import Wanted
from engine.directory.load import load_facts
from engine.lifecycle import workflows
from engine.lifecycle.states import APPROVAL, RUN

COMMENT_LIMIT = 1000
"""Characters of a comment."""

_AUDITED = {"approved": "workflow.approval.approved", "rejected": "workflow.approval.rejected"}


def decide(
    connection: Connection,
    cause: Cause,
    approval_id: str,
    verdict: Literal["approve", "reject"],
    comment: str | None = None,
) -> None:
    """Decide an approval; its run goes on at once.

    Raises Refused: `not_found` for whoever is not an eligible approver of it, the subject above all; `conflict` when it was
    decided before or its time is up by the database's clock; `validation_failed` for a comment that is too long.
    """
    if comment is not None and len(comment) > COMMENT_LIMIT:
        raise Refused("validation_failed", f"a comment has at most {COMMENT_LIMIT} characters", "comment")
    realm_id, user_id = cause.realm_id, cause.actor_id
    run_id = run_changes.run_of_approval(connection, realm_id, approval_id)
    run = None if run_id is None else run_changes.lock_run(connection, realm_id, run_id)
    approval = None if run is None else run_changes.lock_approval(connection, realm_id, approval_id)
    if run is None or approval is None or cause.actor_type != "user" or user_id is None:
        raise _missing()
    user = load_facts(connection, Wanted(watching={(realm_id, user_id)})).users.get((realm_id, user_id))
    if user_id not in approval.approvers or user_id == approval.subject_id or user is None or not user.can_approve:
        raise _missing()
    if approval.state != "pending":
        raise Refused("conflict", f"the approval is {approval.state} already")
    state = APPROVAL.move(approval.state, verdict)
    values = {"state": state, "decided_by": user_id, "ended_at": now(connection), "comment": comment}
    if run.state in RUN.terminal or run_changes.end_approval(connection, realm_id, approval_id, values) == 0:
        raise Refused("conflict", "the time to decide is over")
    run_changes.make_due(connection, realm_id, run.id)
    details = {"run_id": run.id, "workflow_id": run.workflow_id, "subject_id": run.subject_id}
    target = ("approval", approval_id)
    workflows.write(connection, [audit(cause, _AUDITED[state], target, details, category="authorization")])
    notify(connection)


def _missing() -> Refused:
    return Refused("not_found", "this approval does not exist")
