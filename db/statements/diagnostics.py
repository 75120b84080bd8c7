"""What the last runs of a workflow came to, for diagnostics: no inputs, results or subjects.

What looks back starts from the last runs, which an index of the workflow gives in order, so that it costs the same however long
the history is. What is so at this moment (approvals, due runs) is counted whole, from indexes that hold nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, Float, Integer, bindparam, extract, func, select

from db.rows import AnyRow
from db.statements.reads_pages import word
from db.tables import Approval, StepAttempt, WorkflowRun, table
from db.tables.columns import ID

runs = table(WorkflowRun)
attempts = table(StepAttempt)
approvals = table(Approval)

_of_workflow = (
    runs.c.realm_id == bindparam("of_realm", type_=ID),
    runs.c.workflow_id == bindparam("of_workflow", type_=ID),
)
_last_runs = (
    select(runs.c.realm_id, runs.c.id, runs.c.state, runs.c.created_at, runs.c.finished_at)
    .where(*_of_workflow)
    .order_by(runs.c.id.desc())
    .limit(bindparam("last_runs", type_=Integer))
    .cte("last_runs")
)
_seconds = extract("epoch", _last_runs.c.finished_at - _last_runs.c.created_at).cast(Float)
_runs = select(_last_runs.c.state, _seconds.label("seconds"))


def last_runs(connection: Connection, realm_id: str, workflow_id: str, count: int) -> Sequence[AnyRow]:
    """State and, of those that have finished, duration in seconds."""
    given = {"of_realm": realm_id, "of_workflow": workflow_id, "last_runs": count}
    return connection.execute(_runs, given).all()


_their_attempts = _last_runs.join(
    attempts, (attempts.c.realm_id == _last_runs.c.realm_id) & (attempts.c.run_id == _last_runs.c.id)
)
_attempts = (
    select(attempts.c.run_id, attempts.c.step_id, attempts.c.state, attempts.c.error_category, attempts.c.finished_at)
    .select_from(_their_attempts)
    .order_by(attempts.c.started_at.desc(), attempts.c.id.desc())
    .limit(bindparam("last_attempts", type_=Integer))
)


def last_attempts(
    connection: Connection, realm_id: str, workflow_id: str, count_runs: int, count: int
) -> Sequence[AnyRow]:
    """The latest attempts of the last runs, the latest first."""
    given = {"of_realm": realm_id, "of_workflow": workflow_id, "last_runs": count_runs, "last_attempts": count}
    return connection.execute(_attempts, given).all()


_compensation_failures = (
    select(func.count()).select_from(_their_attempts).where(attempts.c.compensation_state == "failed")
)


def compensation_failures(connection: Connection, realm_id: str, workflow_id: str, count_runs: int) -> int:
    """How many steps of the last runs could not be taken back."""
    given = {"of_realm": realm_id, "of_workflow": workflow_id, "last_runs": count_runs}
    return int(connection.execute(_compensation_failures, given).scalar_one())


_pending = (
    select(func.count())
    .select_from(approvals)
    .where(
        approvals.c.realm_id == bindparam("of_realm", type_=ID),
        approvals.c.workflow_id == bindparam("of_workflow", type_=ID),
        approvals.c.state == word("pending"),
    )
)


def pending_approvals(connection: Connection, realm_id: str, workflow_id: str) -> int:
    """How many decisions runs of the workflow wait for now, be it the last ones or not."""
    return int(connection.execute(_pending, {"of_realm": realm_id, "of_workflow": workflow_id}).scalar_one())


_oldest_due = (
    select(runs.c.id, runs.c.due_at)
    .where(
        *_of_workflow,
        runs.c.due_at <= func.statement_timestamp(),
        runs.c.state.in_(["pending", "running", "compensating"]),
    )
    .order_by(runs.c.due_at)
    .limit(1)
)


def oldest_due_run(connection: Connection, realm_id: str, workflow_id: str) -> AnyRow | None:
    """The run that a worker should have taken first, if there is one now, be it one of the last or not."""
    return connection.execute(_oldest_due, {"of_realm": realm_id, "of_workflow": workflow_id}).one_or_none()
