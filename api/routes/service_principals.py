"""Service principals: machines that call the API with a token of their own. They read what their roles let them read; what
changes something is done by a user."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query
from pydantic import Field

from api.auth import Caller, permitted
from api.bodies import StrictRoute
from api.paging import Page, PageQuery, page_of
from api.shapes import Answer, At, Body, Documented, Name, unset
from api.transaction import Transaction
from db.statements import reads_principals as reads
from engine.core.errors import Refused
from engine.core.ids import RoleId, ServicePrincipalId
from engine.directory.commands import service_principals

router = APIRouter(tags=["service-principals"], route_class=StrictRoute)

PrincipalPath = Annotated[ServicePrincipalId, Path(description="The service principal.")]
Reader = Annotated[Caller, permitted("realm.users.read")]
Writer = Annotated[Caller, permitted("realm.users.write", checked_by_verb=True)]
State = Literal["active", "disabled"]
RoleIds = Annotated[list[RoleId], Field(max_length=20), Documented({"uniqueItems": True})]


class ServicePrincipal(Answer):
    """A machine, and the roles (boundary `realm`) that it holds realm-wide."""

    id: str
    name: str
    role_ids: list[str]
    state: State
    created_at: At
    created_by: str | None


class NewServicePrincipal(Body):
    """An active machine. It may hold nothing yet."""

    name: Name
    role_ids: RoleIds = Field(default_factory=list)


class ServicePrincipalChanges(Body):
    """What is left out stays. `role_ids` is all that it holds from then on."""

    name: Name = unset()
    role_ids: RoleIds = unset()


class ServicePrincipalsQuery(PageQuery):
    state: State | None = None


@router.get("/service-principals")
def list_service_principals(
    caller: Reader, connection: Transaction, query: Annotated[ServicePrincipalsQuery, Query()]
) -> Page[ServicePrincipal]:
    """The service principals of the realm, the newest first."""
    return page_of(
        ServicePrincipal,
        query,
        (caller.realm_id, "service-principals"),
        lambda after, limit: reads.principals_page(connection, caller.realm_id, after, limit, state=query.state),
    )


@router.post("/service-principals", status_code=201)
def create_service_principal(caller: Writer, connection: Transaction, body: NewServicePrincipal) -> ServicePrincipal:
    """Make an active service principal. Each of its roles is one that the caller could give."""
    principal_id = service_principals.create(connection, caller.cause, **body.model_dump())
    return _shown(connection, caller, principal_id)


@router.get("/service-principals/{principal_id}")
def get_service_principal(caller: Reader, connection: Transaction, principal_id: PrincipalPath) -> ServicePrincipal:
    """One service principal."""
    return _shown(connection, caller, principal_id)


@router.patch("/service-principals/{principal_id}")
def change_service_principal(
    caller: Writer, connection: Transaction, principal_id: PrincipalPath, body: ServicePrincipalChanges
) -> ServicePrincipal:
    """Change its name or what it holds. Each role that is given or taken is one that the caller could give."""
    service_principals.update(connection, caller.cause, principal_id, **body.model_dump(exclude_unset=True))
    return _shown(connection, caller, principal_id)


@router.post("/service-principals/{principal_id}/disable")
def disable_service_principal(caller: Writer, connection: Transaction, principal_id: PrincipalPath) -> ServicePrincipal:
    """Turn its tokens away from now on. Disabled already: nothing changes."""
    service_principals.disable(connection, caller.cause, principal_id)
    return _shown(connection, caller, principal_id)


@router.post("/service-principals/{principal_id}/enable")
def enable_service_principal(caller: Writer, connection: Transaction, principal_id: PrincipalPath) -> ServicePrincipal:
    """Take its tokens again. Each role it holds is one that the caller could give."""
    service_principals.enable(connection, caller.cause, principal_id)
    return _shown(connection, caller, principal_id)


def _shown(connection: Transaction, caller: Caller, principal_id: str) -> ServicePrincipal:
    row = reads.principal(connection, caller.realm_id, principal_id)
    if row is None:
        raise Refused("not_found", "this service principal does not exist")
    return ServicePrincipal.model_validate(row)
