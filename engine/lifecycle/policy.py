"""The realm's policy, as far as workflows ask for it."""

from __future__ import annotations

from sqlalchemy import Connection

from db.statements.workflows import publish_policy


def publication_needs_approval(connection: Connection, realm_id: str, asked: bool | None) -> bool:
    """Whether a workflow created now needs an approved revision before it is published: what was asked for or the realm's
    policy, whichever is stricter. A policy that is not there fails closed."""
    policy = publish_policy(connection, realm_id)
    return bool(asked) or policy is None or policy
