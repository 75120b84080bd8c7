"""Whether the database can be used at all."""

from __future__ import annotations

from sqlalchemy import Connection, text

_revision = text("SELECT version_num FROM alembic_version")


def applied_revision(connection: Connection) -> str | None:
    """The migration the database is at. Raises what the database raises when it has no tables yet."""
    revision: str | None = connection.execute(_revision).scalar_one_or_none()
    return revision
