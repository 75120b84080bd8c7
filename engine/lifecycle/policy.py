"""The realm's policy, as far as workflows ask for it."""

from __future__ import annotations

from sqlalchemy import Connection, select

from db.tables import Realm, table

_realms = table(Realm)


def publication_needs_approval(connection: Connection, realm_id: str, asked: bool | None) -> bool:
    """Whether a workflow created now needs an approved revision before it is published: what was asked for or the realm's
    `extensions.workflow_publish_approval`, whichever is stricter. A policy that is not there fails closed."""
    policy = connection.execute(
        select(_realms.c.workflow_publish_approval).where(_realms.c.id == realm_id)
    ).scalar_one_or_none()
    return bool(asked) or policy is None or policy
