"""The token, looked at before the body: who is not known, or is not let into this realm, has nothing read that they sent.

A megabyte of JSON is some twenty of objects and a second of work. bodies.py asks here before it reads; what is found waits in
the request for auth.py, so that a token is verified once.
"""

from __future__ import annotations

from fastapi import Request
from fastapi.security import HTTPBearer
from starlette.concurrency import run_in_threadpool

from api.parts import parts_of
from api.problems import Problem
from api.tokens import Audience, Claims, TokenRefused

_bearer = HTTPBearer(auto_error=False)


async def admit(request: Request, audience: Audience) -> None:
    """Verify the token, for this audience and for the realm of the path. Who fails too often is held up (limits.py). Raises
    Problem and Unavailable."""
    credentials = await _bearer(request)
    if credentials is None:
        parts_of(request).limits.count_unknown(request.client)
        raise Problem("unauthenticated", "This needs a bearer token.", headers={"WWW-Authenticate": "Bearer"})
    request.state.claims = await run_in_threadpool(_verified, request, audience, credentials.credentials)


def claims_of(request: Request, audience: Audience) -> Claims:
    """What `admit` has found. A route that was not guarded by it for this audience fails here, before it does anything."""
    claims = request.state.claims
    assert isinstance(claims, Claims)
    assert claims.audience == audience
    return claims


def token_refused(request: Request) -> Problem:
    """The token does not count; counted against the place it came from. Raises Problem when that was so too often."""
    parts_of(request).limits.count_unknown(request.client)
    challenge = {"WWW-Authenticate": 'Bearer error="invalid_token"'}
    return Problem("unauthenticated", "The token is not valid here.", headers=challenge)


def _verified(request: Request, audience: Audience, token: str) -> Claims:
    """In a thread: the keys of a provider may have to be waited for."""
    parts = parts_of(request)
    try:
        claims = parts.verifier.verify(token, audience)
    except TokenRefused:
        raise token_refused(request) from None
    request.state.counted_as = f"{claims.realm_id}/{claims.subject_id}"
    parts.limits.require_few(request.state.counted_as)
    if claims.realm_id != request.path_params["realm_id"]:
        raise Problem("not_found", "This realm does not exist.")
    if audience == "admin" and not claims.is_machine and "mfa" not in claims.methods:
        raise Problem("mfa_required", "Administration needs a token of a session with a second factor.")
    return claims
