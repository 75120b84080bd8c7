"""Run by alembic for each command. The connection comes from db/migrate.py, which also holds the lock; there is no
offline mode."""

from __future__ import annotations

from typing import Any, cast

from alembic import context
from sqlmodel import SQLModel

from db import tables  # noqa: F401  the tables register themselves in SQLModel.metadata


def _remember(*, step: Any, **_: Any) -> None:
    """Tell db/migrate.py which revision was applied."""
    context.config.attributes["applied"].append(step.up_revision_id)


context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=SQLModel.metadata,
    compare_type=True,
    compare_server_default=True,
    transaction_per_migration=True,
    on_version_apply=cast(Any, _remember),  # its declared type names the arguments it passes by keyword
)
with context.begin_transaction():
    context.run_migrations()
