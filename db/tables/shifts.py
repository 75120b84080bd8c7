"""Who hosts the engine's loops at the moment, and until when they last showed a sign of life."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import BigInteger, CheckConstraint, Index, text
from sqlmodel import Field, SQLModel

from db.tables.columns import ID, MOMENT, NOW, WORD, one_of

SHIFT_ENDS = ("relieved", "capped", "finished", "stopped", "cancelled", "crashed", "lost")


class Shift(SQLModel, table=True):
    """One hosting of one loop by one process: a row for operators, for relief and for cleaning up, never for correctness.

    The engine is right without this table: leases and fences protect the runs. It answers three questions: has a younger
    shift taken over (younger by `started_at`, the database's clock, then by id), which leases are those of a dead flow run,
    and which shift is silent.
    """

    __tablename__ = "shifts"
    __table_args__ = (
        CheckConstraint("(ended_at IS NULL) = (ended_how IS NULL)", name="ended_is_whole"),
        CheckConstraint(one_of("ended_how", *SHIFT_ENDS), name="ended_how_is_known"),
        CheckConstraint("passes >= 0", name="passes_are_counted"),
        Index("shifts_open", "deployment", "started_at", postgresql_where=text("ended_at IS NULL")),
        Index("shifts_of_flow_run", "flow_run_id", postgresql_where=text("flow_run_id IS NOT NULL")),
        Index("shifts_ended", "ended_at", postgresql_where=text("ended_at IS NOT NULL")),
    )

    id: str = Field(sa_type=ID, primary_key=True)
    deployment: str = Field(sa_type=WORD)
    owner: str = Field(sa_type=ID)
    flow_run_id: str | None = Field(default=None, sa_type=ID)
    started_at: datetime = Field(sa_type=MOMENT, sa_column_kwargs={"server_default": text(NOW)})
    last_pass_at: datetime | None = Field(default=None, sa_type=MOMENT)
    ended_at: datetime | None = Field(default=None, sa_type=MOMENT)
    passes: int = Field(default=0, sa_type=BigInteger, sa_column_kwargs={"server_default": text("0")})
    ended_how: str | None = Field(default=None, sa_type=WORD)
