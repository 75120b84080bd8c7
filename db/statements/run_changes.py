"""What a person changes about a run, which is locked first, as the workers do; and whether a workflow has unfinished ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, bindparam, case, exists, func, or_, select

from db.rows import AnyRow
from db.tables import Approval, WorkflowRun, table
from db.tables.columns import ID

runs = table(WorkflowRun)
approvals = table(Approval)


def lock_run(connection: Connection, realm_id: str, run_id: str) -> AnyRow | None:
    """A run, locked."""
    statement = select(runs).where(runs.c.realm_id == realm_id, runs.c.id == run_id)
    return connection.execute(statement.with_for_update()).one_or_none()


# While a worker holds the run its due_at is the end of the lease, and it looks at the run again by itself.
_due_now = case((runs.c.lease_owner.is_(None), func.clock_timestamp()), else_=runs.c.due_at)


def request_cancel(connection: Connection, realm_id: str, run_id: str) -> None:
    """Ask for the cancellation of a locked run. A run that is held back by a disabled workflow goes on to be cancelled."""
    connection.execute(
        runs.update()
        .where(runs.c.realm_id == realm_id, runs.c.id == run_id)
        .values(cancel_requested_at=func.clock_timestamp(), paused=False, due_at=_due_now)
    )


def make_due(connection: Connection, realm_id: str, run_id: str) -> None:
    """A locked run is due now, unless it is paused or in a worker's hands."""
    connection.execute(
        runs.update().where(runs.c.realm_id == realm_id, runs.c.id == run_id, ~runs.c.paused).values(due_at=_due_now)
    )


def run_of_approval(connection: Connection, realm_id: str, approval_id: str) -> str | None:
    """The run an approval belongs to."""
    return connection.execute(
        select(approvals.c.run_id).where(approvals.c.realm_id == realm_id, approvals.c.id == approval_id)
    ).scalar_one_or_none()


def lock_approval(connection: Connection, realm_id: str, approval_id: str) -> AnyRow | None:
    """An approval, locked. Its run has been locked before."""
    statement = select(approvals).where(approvals.c.realm_id == realm_id, approvals.c.id == approval_id)
    return connection.execute(statement.with_for_update()).one_or_none()


def end_approval(connection: Connection, realm_id: str, approval_id: str, values: Mapping[str, Any]) -> int:
    """Decide a pending approval before its expiry, by the database's clock."""
    return int(
        connection.execute(
            approvals.update()
            .where(
                approvals.c.realm_id == realm_id,
                approvals.c.id == approval_id,
                approvals.c.state == "pending",
                approvals.c.expires_at > func.clock_timestamp(),
            )
            .values(values)
        ).rowcount
    )


_of_workflow = (
    runs.c.realm_id == bindparam("of_realm", type_=ID),
    runs.c.workflow_id == bindparam("of_workflow", type_=ID),
)


# A run that is not finished is due or paused (a check of the table), and each of the two has an index of its own. OFFSET 0
# keeps the planner from the index of all runs of a workflow, and ORDER BY from reading the whole table: a million finished
# runs are in both.
_due = (
    select(runs.c.workflow_id)
    .where(runs.c.realm_id == bindparam("of_realm", type_=ID), runs.c.due_at.is_not(None))
    .order_by(runs.c.due_at)
    .offset(0)
    .subquery("unfinished")
)
_unfinished = select(
    or_(
        exists().where(*_of_workflow, runs.c.paused),
        exists().where(_due.c.workflow_id == bindparam("of_workflow", type_=ID)),
    )
)


def has_unfinished(connection: Connection, realm_id: str, workflow_id: str) -> bool:
    """Whether a workflow has a run that is not finished. Stable while the workflow is locked for change: none begins."""
    given = {"of_realm": realm_id, "of_workflow": workflow_id}
    return bool(connection.execute(_unfinished, given).scalar_one())
