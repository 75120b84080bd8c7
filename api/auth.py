"""Who calls, and what the route wants of them: exactly one declaration a route, readable from the table of routes.

    caller: Annotated[Caller, permitted("realm.workflows.write")]
    caller: Annotated[Caller, permitted("org.members.write", organization="organization_id")]
    caller: Annotated[Caller, permitted("realm.events.write", machines=True)]
    caller: Annotated[Caller, account()]                    self-service, of a user about themselves
    dependencies=[public()]                                 anybody

The permission is asked before the verb, so that who lacks it learns nothing. What changes something asks again under locks:
inside the verb (`checked_by_verb`), else behind it, for users are locked after runs and workflows.

A service principal has no second factor. It may read what its roles let it read (an endpoint that was called looks up there
what the call names); what changes something is done by a user, but where a route says `machines`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from fastapi import Depends, Path, Request
from fastapi.dependencies.models import Dependant
from sqlalchemy import Connection

from api.admission import claims_of, token_refused
from api.tokens import Audience, Claims
from api.transaction import Transaction
from db.statements.reads_authority import principal_standing, standing
from engine.core.errors import Refused
from engine.core.ids import Prefix, is_id
from engine.core.trail import Cause
from engine.directory.authority import Authority
from engine.directory.commands.acting import allow, require_still


@dataclass(frozen=True, slots=True)
class Caller:
    """An active user or service principal, and what it may do at this moment."""

    realm_id: str
    id: str
    kind: Literal["user", "service_principal"]
    request_id: str
    authority: Authority

    @property
    def cause(self) -> Cause:
        """On whose account the verbs act."""
        return Cause(self.realm_id, self.kind, self.id, request_id=self.request_id)

    def require(self, permission: str, organization_id: str | None = None) -> None:
        """Raise Refused("forbidden") unless the permission is held, realm-wide or in that organization."""
        allow(self.authority, permission, organization_id)


class _Admitted:
    """The token's claims: for this audience, and for the realm of the path. Looked at before the body (admission.py)."""

    def __init__(self, audience: Audience) -> None:
        self.audience = audience

    async def __call__(
        self,
        request: Request,
        realm_id: Annotated[str, Path(description="The realm.", examples=["rlm_01jbh0ybgaravg3xcq0zdp2eg0"])],
    ) -> Claims:
        return claims_of(request, self.audience)


class Declared:
    """What a route wants of its caller. `declares` says it in one word."""

    declares: str
    audience: Audience | None = None
    """Whose tokens are asked for; None for nobody's."""


class _Public(Declared):
    declares = "public"

    def __call__(self) -> None:
        """Anybody may call."""


class _Account(Declared):
    declares = "account"
    audience = "account"

    def __call__(
        self,
        request: Request,
        claims: Annotated[Claims, Depends(_Admitted("account"))],
        connection: Transaction,
    ) -> Caller:
        return _caller(request, claims, connection)


class Permitted(Declared):
    """One of `permissions`, in the realm or in the organization that the path parameter `organization` names.

    `somewhere`: the place shows only from the body or the row, so the route or the verb asks for the exact one.
    """

    audience = "admin"

    def __init__(
        self,
        permissions: Sequence[str],
        organization: str | None,
        somewhere: bool,
        checked_by_verb: bool,
        machines: bool,
    ) -> None:
        self.machines = machines
        self.permissions = tuple(permissions)
        self.organization = organization
        self.somewhere = somewhere
        self.checked_by_verb = checked_by_verb
        self.declares = " or ".join(permissions)

    def __call__(
        self,
        request: Request,
        claims: Annotated[Claims, Depends(_Admitted("admin"))],
        connection: Transaction,
    ) -> Iterator[Caller]:
        caller = _caller(request, claims, connection)
        organization_id = self._organization(request)
        if not any(self._held(caller.authority, permission, organization_id) for permission in self.permissions):
            raise Refused("forbidden", f"this needs the permission {self.declares}")
        if caller.kind != "user" and request.method != "GET" and not self.machines:
            raise Refused("forbidden", "this is done by a user")
        yield caller
        if request.method != "GET" and not self.checked_by_verb:
            require_still(connection, caller.cause, self.permissions[0], organization_id)

    def _organization(self, request: Request) -> str | None:
        if self.organization is None:
            return None
        organization_id = request.path_params[self.organization]
        if not is_id(organization_id, Prefix.ORGANIZATION):
            raise Refused("not_found", "this organization does not exist")
        return str(organization_id)

    def _held(self, authority: Authority, permission: str, organization_id: str | None) -> bool:
        if self.somewhere:
            return any(Authority(((None, permissions),)).holds(permission) for _, permissions in authority.grants)
        return authority.holds(permission, organization_id)


def permitted(
    *permissions: str,
    organization: str | None = None,
    somewhere: bool = False,
    checked_by_verb: bool = False,
    machines: bool = False,
) -> Any:
    """The declaration of an administration route."""
    return Depends(Permitted(permissions, organization, somewhere, checked_by_verb, machines), scope="function")


def account() -> Any:
    """The declaration of a self-service route."""
    return Depends(_Account())


def public() -> Any:
    """The declaration of a route without a caller."""
    return Depends(_Public())


def declared_by(dependant: Dependant) -> Iterator[Declared]:
    """What a route declares. Exactly one thing is right."""
    call: object = dependant.call
    if isinstance(call, Declared):
        yield call
    for inner in dependant.dependencies:
        yield from declared_by(inner)


def _caller(request: Request, claims: Claims, connection: Connection) -> Caller:
    read = principal_standing if claims.is_machine else standing
    rows = read(connection, claims.realm_id, claims.subject_id)
    if not rows or rows[0].state != "active":
        raise token_refused(request)
    grants = tuple((row.organization_id, frozenset(row.permissions)) for row in rows if row.permissions is not None)
    kind: Literal["user", "service_principal"] = "service_principal" if claims.is_machine else "user"
    return Caller(claims.realm_id, claims.subject_id, kind, request.state.request_id, Authority(grants))
