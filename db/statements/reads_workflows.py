"""Workflows and revisions, as they are read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Row, select

from db.statements.reads_pages import newest
from db.tables import Workflow, WorkflowRevision, table

workflows = table(Workflow)
revisions = table(WorkflowRevision)

_is_there = workflows.c.state != "deleted"
"""A deleted workflow is kept for its runs alone: whoever reads workflows or what is below them finds nothing."""


def workflows_page(
    connection: Connection, realm_id: str, after: str | None, limit: int, *, state: str | None = None
) -> Sequence[Row[Any]]:
    """Workflows of a realm, the newest first."""
    statement = select(workflows).where(workflows.c.realm_id == realm_id, _is_there)
    if state is not None:
        statement = statement.where(workflows.c.state == state)
    return newest(connection, statement, workflows.c.id, after, limit)


def workflow(connection: Connection, realm_id: str, workflow_id: str) -> Row[Any] | None:
    """A workflow."""
    return connection.execute(
        select(workflows).where(workflows.c.realm_id == realm_id, workflows.c.id == workflow_id, _is_there)
    ).one_or_none()


def revisions_page(
    connection: Connection, realm_id: str, workflow_id: str, after: int | None, limit: int
) -> Sequence[Row[Any]]:
    """Revisions of a workflow, the newest first."""
    statement = select(revisions).where(revisions.c.realm_id == realm_id, revisions.c.workflow_id == workflow_id)
    return newest(connection, statement, revisions.c.number, after, limit)


def revision(connection: Connection, realm_id: str, workflow_id: str, number: int) -> Row[Any] | None:
    """A revision, with its definition."""
    return connection.execute(
        select(revisions)
        .join(workflows, (workflows.c.realm_id == revisions.c.realm_id) & (workflows.c.id == revisions.c.workflow_id))
        .where(
            revisions.c.realm_id == realm_id,
            revisions.c.workflow_id == workflow_id,
            revisions.c.number == number,
            _is_there,
        )
    ).one_or_none()
