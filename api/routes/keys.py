"""The public key of the local issuer, for those who verify its tokens elsewhere."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request

from api.auth import public
from api.bodies import StrictRoute
from api.parts import parts_of

router = APIRouter(tags=["health"], route_class=StrictRoute, dependencies=[public()])


@router.get("/.well-known/jwks.json")
def get_keys(request: Request) -> dict[str, Any]:
    """A JWK set (RFC 7517)."""
    return parts_of(request).issuer.jwks()
