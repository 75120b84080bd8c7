"""The public key of the local issuer, for those who verify its tokens elsewhere."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter, Request

from api.auth import public
from api.bodies import StrictRoute
from api.parts import parts_of
from api.shapes import Answer

router = APIRouter(tags=["health"], route_class=StrictRoute, dependencies=[public()])


class Key(Answer):
    """A public key (RFC 8037)."""

    kty: Literal["OKP"]
    crv: Literal["Ed25519"]
    use: Literal["sig"]
    alg: Literal["EdDSA"]
    kid: str
    x: str


class KeySet(Answer):
    """A JWK set (RFC 7517)."""

    keys: list[Key]


@router.get("/.well-known/jwks.json")
def get_keys(request: Request) -> KeySet:
    """The keys that tokens of the local issuer are verified with. None where the tokens of the local issuer do not count."""
    issuer = parts_of(request).issuer
    return KeySet.model_validate({"keys": []} if issuer is None else issuer.jwks())
