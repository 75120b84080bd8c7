"""Whether the process lives, and whether it can work."""

from __future__ import annotations

from functools import cache
from typing import Literal

from fastapi import APIRouter
from sqlalchemy.exc import ProgrammingError

from api.auth import public
from api.bodies import StrictRoute
from api.problems import Problem
from api.shapes import Answer
from api.transaction import HURRY, HurriedTransaction
from db.migrate import head
from db.statements.metrics import be_patient_for
from db.statements.readiness import applied_revision

router = APIRouter(prefix="/health", tags=["health"], route_class=StrictRoute, dependencies=[public()])


class Health(Answer):
    """There is nothing more to say: what is not well is answered with a problem."""

    status: Literal["ok"] = "ok"


@router.get("/live")
@router.head("/live", include_in_schema=False)
def is_live() -> Health:
    """The process answers."""
    return Health()


@router.get("/ready")
@router.head("/ready", include_in_schema=False)
def is_ready(connection: HurriedTransaction) -> Health:
    """The database answers and has the tables this version needs. 503 otherwise, or when that took longer than two seconds."""
    be_patient_for(connection, HURRY)
    try:
        applied = applied_revision(connection)
    except ProgrammingError:  # not even the table that says so
        applied = None
    if applied != _needed():
        raise Problem("unavailable", "The database does not have the tables this version needs.")
    return Health()


@cache
def _needed() -> str | None:
    return head()
