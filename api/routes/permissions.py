"""The catalogue of permissions."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter

from api.auth import Caller, permitted
from api.bodies import StrictRoute
from api.shapes import Answer
from engine.directory.permissions import CATALOGUE

router = APIRouter(tags=["roles"], route_class=StrictRoute)


class Permission(Answer):
    """A permission and the risk of giving it."""

    name: str
    risk: Literal["normal", "high", "privileged"]


class Permissions(Answer):
    """All of them. `realm.*`, `org.*` and `*` stand in roles for many."""

    items: list[Permission]


@router.get("/permissions")
def list_permissions(caller: Annotated[Caller, permitted("realm.roles.read")]) -> Permissions:
    """The permissions that a role may hold."""
    return Permissions.model_validate({"items": [{"name": name, "risk": risk} for name, risk in CATALOGUE.items()]})
