"""Runs, their attempts and approvals, as they are read."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, Subquery, func, or_, select

from db.statements.reads_pages import moment, newest, word
from db.tables import Approval, StepAttempt, User, Workflow, WorkflowRun, table
from db.tables.runs import FINISHED_STATES

runs = table(WorkflowRun)
attempts = table(StepAttempt)
approvals = table(Approval)
users = table(User)
workflows = table(Workflow)

LATELY = 5_000
"""Runs among which a page of unfinished ones is looked for first. Where they do not fill it, all that are unfinished are read:
those that are due or paused, by a rule of the table, and two indexes hold them alone. OFFSET 0 keeps the planner from walking
through the finished ones instead, on the guess that it will soon come upon one."""


def runs_page(
    connection: Connection,
    realm_id: str,
    after: str | None,
    limit: int,
    *,
    workflow_id: str | None = None,
    subject_id: str | None = None,
    state: str | None = None,
    trigger: str | None = None,
    since: datetime | None = None,
) -> Sequence[Row[Any]]:
    """Runs of a realm, the newest first."""
    statement = select(runs).where(runs.c.realm_id == realm_id)
    if workflow_id is not None:
        statement = statement.where(runs.c.workflow_id == workflow_id)
    if subject_id is not None:
        statement = statement.where(runs.c.subject_id == subject_id)
    if trigger is not None:
        statement = statement.where(runs.c.trigger_type == word(trigger))
    if since is not None:
        statement = statement.where(runs.c.created_at >= moment(since))
    if state is None:
        return newest(connection, statement, runs.c.id, after, limit)
    if state in FINISHED_STATES:
        return newest(connection, statement.where(runs.c.state == word(state)), runs.c.id, after, limit)
    if after is not None:
        statement = statement.where(runs.c.id < after)
    lately = statement.order_by(runs.c.id.desc()).limit(LATELY).subquery("lately")
    unfinished = statement.where(or_(runs.c.due_at.is_not(None), runs.c.paused)).offset(0).subquery("unfinished")
    found = _in_state(connection, lately, state, limit)
    return found if len(found) == limit else _in_state(connection, unfinished, state, limit)


def _in_state(connection: Connection, some: Subquery, state: str, limit: int) -> Sequence[Row[Any]]:
    return newest(connection, select(some).where(some.c.state == word(state)), some.c.id, None, limit)


def run(connection: Connection, realm_id: str, run_id: str) -> Row[Any] | None:
    """A run."""
    return connection.execute(select(runs).where(runs.c.realm_id == realm_id, runs.c.id == run_id)).one_or_none()


def attempts_of(connection: Connection, realm_id: str, run_id: str) -> Sequence[Row[Any]]:
    """The attempts of a run, in the order in which they were made: at most 20 steps of 10 attempts."""
    return connection.execute(
        select(attempts)
        .where(attempts.c.realm_id == realm_id, attempts.c.run_id == run_id)
        .order_by(attempts.c.step_index, attempts.c.attempt)
    ).all()


def approvals_of(connection: Connection, realm_id: str, run_id: str) -> Sequence[Row[Any]]:
    """The approvals of a run, in the order of its steps."""
    return connection.execute(
        select(approvals)
        .where(approvals.c.realm_id == realm_id, approvals.c.run_id == run_id)
        .order_by(approvals.c.step_index)
    ).all()


def approvals_page(
    connection: Connection, realm_id: str, after: str | None, limit: int, *, state: str | None = None
) -> Sequence[Row[Any]]:
    """Approvals of a realm, the newest first."""
    statement = select(approvals).where(approvals.c.realm_id == realm_id)
    if state is not None:
        statement = statement.where(approvals.c.state == word(state))
    return newest(connection, statement, approvals.c.id, after, limit)


def approval(connection: Connection, realm_id: str, approval_id: str) -> Row[Any] | None:
    """An approval."""
    return connection.execute(
        select(approvals).where(approvals.c.realm_id == realm_id, approvals.c.id == approval_id)
    ).one_or_none()


def approvals_waiting_for(
    connection: Connection, realm_id: str, user_id: str, after: str | None, limit: int
) -> Sequence[Row[Any]]:
    """What a user is asked to decide and still can, the newest first, with the workflow's name. Never about the user, and
    nothing for a guest."""
    statement = (
        select(approvals, workflows.c.name.label("workflow_name"))
        .join(workflows, (workflows.c.realm_id == approvals.c.realm_id) & (workflows.c.id == approvals.c.workflow_id))
        .join(users, (users.c.realm_id == approvals.c.realm_id) & (users.c.id == user_id))
        .where(
            approvals.c.realm_id == realm_id,
            approvals.c.approvers.contains([user_id]),
            users.c.state == "active",
            users.c.kind == "member",
            approvals.c.state == "pending",
            approvals.c.expires_at > func.clock_timestamp(),
            approvals.c.subject_id != user_id,
        )
    )
    return newest(connection, statement, approvals.c.id, after, limit)
