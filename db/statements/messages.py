"""Messages: take what is due, record how it ended."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, Float, Integer, bindparam, func, select

from db.rows import AnyRow
from db.statements.bulk import update_rows
from db.tables import Message, Realm, User, Workflow, table

messages = table(Message)
users = table(User)
realms = table(Realm)
workflows = table(Workflow)

_due = (
    select(messages.c.realm_id, messages.c.id)
    .where(messages.c.due_at <= func.statement_timestamp())
    .order_by(messages.c.due_at)
    .limit(bindparam("limit", type_=Integer))
    .with_for_update(skip_locked=True)
    .cte("due")
)
_lease_end = func.statement_timestamp() + func.make_interval(0, 0, 0, 0, 0, 0, bindparam("lease", type_=Float))
_taken = (
    messages.update()
    .values(due_at=_lease_end, attempts=messages.c.attempts + 1, fence=messages.c.fence + 1)
    .where(messages.c.realm_id == _due.c.realm_id, messages.c.id == _due.c.id)
    .returning(
        messages.c.realm_id,
        messages.c.id,
        messages.c.recipient_id,
        messages.c.workflow_id,
        messages.c.notice,
        messages.c.attempts,
        messages.c.fence,
        messages.c.created_at,
    )
    .cte("taken")
)
_take = (
    select(
        _taken,
        users.c.email,
        users.c.state.label("user_state"),
        realms.c.name.label("realm_name"),
        realms.c.notice_subject,
        realms.c.notice_body,
        workflows.c.name.label("workflow_name"),
    )
    .join(users, (users.c.realm_id == _taken.c.realm_id) & (users.c.id == _taken.c.recipient_id))
    .join(realms, realms.c.id == _taken.c.realm_id)
    .join(workflows, (workflows.c.realm_id == _taken.c.realm_id) & (workflows.c.id == _taken.c.workflow_id))
)


def take_due(connection: Connection, *, limit: int, lease: float) -> Sequence[AnyRow]:
    """Due messages with the address and wording of this moment; they are due again after `lease` seconds."""
    return connection.execute(_take, {"limit": limit, "lease": lease}).all()


END_MESSAGE = update_rows(
    messages,
    ["realm_id", "id", "fence"],
    ["state", "due_at", "ended_at", "last_error"],
    "messages.state = 'queued'",
    name="end message",
)
"""Sent, given up, or due again. Names the fence: a message that another worker has taken meanwhile is that worker's."""
