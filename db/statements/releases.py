"""Runs that a disabled workflow held back, and that go on since it is enabled again. Large numbers of them, so a page at a time.

No statement here waits for a run: what somebody else has at this moment is left to the next page.
"""

from __future__ import annotations

from sqlalchemy import Connection, bindparam, exists, func, select, tuple_
from sqlalchemy.types import Integer

from db.statements.bulk import keys as keys_of
from db.statements.bulk import unnested
from db.tables import Workflow, WorkflowRun, table
from db.tables.columns import ID

runs = table(WorkflowRun)
workflows = table(Workflow)

PAGE = 500
"""Runs a statement lets go at most."""

_held = (runs.c.realm_id == workflows.c.realm_id) & (runs.c.workflow_id == workflows.c.id) & runs.c.paused
_page = (
    select(runs.c.realm_id, runs.c.id)
    .join(workflows, _held)
    .where(workflows.c.releasing, workflows.c.state == "active")
    .limit(bindparam("page", type_=Integer))
    .with_for_update(of=runs, skip_locked=True)
    .cte("page")
)
_release = (
    runs.update()
    .where(runs.c.realm_id == _page.c.realm_id, runs.c.id == _page.c.id)
    .values(paused=False, due_at=func.clock_timestamp())
)


def release_page(connection: Connection) -> int:
    """Up to PAGE runs of workflows that are letting go are due now. Returns how many."""
    return int(connection.execute(_release, {"page": PAGE}).rowcount)


_of_one = (
    select(runs.c.realm_id, runs.c.id)
    .where(
        runs.c.realm_id == bindparam("of_realm", type_=ID),
        runs.c.workflow_id == bindparam("of_workflow", type_=ID),
        runs.c.paused,
    )
    .limit(bindparam("page", type_=Integer))
    .with_for_update(skip_locked=True)
    .cte("page")
)
_release_one = (
    runs.update()
    .where(runs.c.realm_id == _of_one.c.realm_id, runs.c.id == _of_one.c.id)
    .values(paused=False, due_at=func.clock_timestamp())
)


def release_first_page(connection: Connection, realm_id: str, workflow_id: str) -> int:
    """The same for one workflow, in the transaction that enables it: it holds the workflow, so it must wait for no run."""
    given = {"of_realm": realm_id, "of_workflow": workflow_id, "page": PAGE}
    return int(connection.execute(_release_one, given).rowcount)


_letting_go = (
    select(workflows.c.realm_id, workflows.c.id)
    .where(workflows.c.releasing)
    .order_by(workflows.c.realm_id, workflows.c.id)
    .limit(100)
    .with_for_update(key_share=True, skip_locked=True)
)
_keys = unnested({"realm_id": ID, "id": ID}, "letting_go")
_end = (
    workflows.update()
    .where(
        tuple_(workflows.c.realm_id, workflows.c.id).in_(select(_keys.c.realm_id, _keys.c.id)),
        (workflows.c.state != "active") | ~exists().where(_held),
    )
    .values(releasing=False)
)


def end_releases(connection: Connection) -> None:
    """Workflows that hold no run back any more, or are disabled again, let go no longer. They are locked first and looked at by
    another statement: nobody enables one, and no worker pauses a run of one, between the look and the mark."""
    locked = [(row.realm_id, row.id) for row in connection.execute(_letting_go)]
    if locked:
        connection.execute(_end, keys_of(locked))
