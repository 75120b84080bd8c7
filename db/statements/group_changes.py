"""One group at a time: what a person changes about it."""

from __future__ import annotations

from sqlalchemy import Connection, select

from db.tables import Group, table

groups = table(Group)


def lock_group_for_change(connection: Connection, realm_id: str, group_id: str) -> None:
    """Wait for all whose authority rests on the group (they hold it FOR SHARE), and keep new ones out."""
    connection.execute(
        select(groups.c.id)
        .where(groups.c.realm_id == realm_id, groups.c.id == group_id)
        .with_for_update(key_share=True)
    )
