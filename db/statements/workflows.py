"""Workflows and revisions, one at a time: what an administrator changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, bindparam, func, select

from db.rows import AnyRow
from db.statements import gates
from db.tables import EventTrigger, Realm, ScheduleTrigger, Workflow, WorkflowRevision, table
from db.tables.columns import ID

realms = table(Realm)
workflows = table(Workflow)
revisions = table(WorkflowRevision)
event_triggers = table(EventTrigger)
schedule_triggers = table(ScheduleTrigger)


def insert_workflow(connection: Connection, values: Mapping[str, Any]) -> None:
    """A new workflow."""
    connection.execute(workflows.insert().values(values))


# A deleted workflow is not there, for anybody who asks for it by its id.
_workflow = select(workflows).where(
    workflows.c.realm_id == bindparam("of_realm", type_=ID),
    workflows.c.id == bindparam("of_workflow", type_=ID),
    workflows.c.state != "deleted",
)


def lock_workflow(connection: Connection, realm_id: str, workflow_id: str) -> AnyRow | None:
    """A workflow, locked for change."""
    gates.take(connection, realm_id, workflow_id)
    given = {"of_realm": realm_id, "of_workflow": workflow_id}
    return connection.execute(_workflow.with_for_update(key_share=True), given).one_or_none()


def share_workflow(connection: Connection, realm_id: str, workflow_id: str) -> AnyRow | None:
    """A workflow, held as it is until the caller commits."""
    gates.share(connection, [(realm_id, workflow_id)])
    given = {"of_realm": realm_id, "of_workflow": workflow_id}
    return connection.execute(_workflow.with_for_update(read=True), given).one_or_none()


def update_workflow(connection: Connection, realm_id: str, workflow_id: str, values: Mapping[str, Any]) -> None:
    """Change columns of a workflow that the caller has locked."""
    connection.execute(
        workflows.update()
        .where(workflows.c.realm_id == realm_id, workflows.c.id == workflow_id)
        .values(**values, updated_at=func.clock_timestamp())
    )


def insert_revision(connection: Connection, values: Mapping[str, Any]) -> None:
    """A new revision."""
    connection.execute(revisions.insert().values(values))


def revision(connection: Connection, realm_id: str, workflow_id: str, number: int) -> AnyRow | None:
    """A revision. Stable while its workflow is locked."""
    return connection.execute(
        select(revisions).where(
            revisions.c.realm_id == realm_id, revisions.c.workflow_id == workflow_id, revisions.c.number == number
        )
    ).one_or_none()


def update_revision(
    connection: Connection, realm_id: str, workflow_id: str, number: int, values: Mapping[str, Any]
) -> None:
    """Change the status of a revision whose workflow the caller has locked."""
    connection.execute(
        revisions.update()
        .where(revisions.c.realm_id == realm_id, revisions.c.workflow_id == workflow_id, revisions.c.number == number)
        .values(**values)
    )


def replace_triggers(
    connection: Connection,
    realm_id: str,
    workflow_id: str,
    events: Sequence[Mapping[str, Any]],
    schedules: Sequence[Mapping[str, Any]],
) -> None:
    """Spread out the triggers of the revision that is published now, in place of those before; none, and nothing fires."""
    for triggers, rows in ((event_triggers, events), (schedule_triggers, schedules)):
        connection.execute(
            triggers.delete().where(triggers.c.realm_id == realm_id, triggers.c.workflow_id == workflow_id)
        )
        if rows:
            connection.execute(triggers.insert(), [dict(row) for row in rows])


def publish_policy(connection: Connection, realm_id: str) -> bool | None:
    """The realm's `extensions.workflow_publish_approval`, held as it is until the caller commits; None when there is no such
    realm."""
    statement = select(realms.c.workflow_publish_approval).where(realms.c.id == realm_id)
    return connection.execute(statement.with_for_update(read=True)).scalar_one_or_none()
