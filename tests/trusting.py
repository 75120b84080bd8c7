"""The API of tests/calling.py where an identity provider is trusted, with a clock that is told how old keys are.

with an_api_that_trusts(database, provider, clock) as api:
    api.with_token(provider.token(key, api.realm_id, api.realm.admin)).get("/users")
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from api.oidc import trusted_provider
from api.settings import ApiSettings
from api.tokens import TrustedIssuer, Verifier
from db.session import Database
from tests.calling import ISSUER, Api, an_api, the_server
from tests.identity_provider import Clock, IdentityProvider


@contextmanager
def an_api_that_trusts(
    database: Database, provider: IdentityProvider, clock: Clock | None = None, **settings: Any
) -> Iterator[Api]:
    """The API over a database and a realm in it; both issuers are trusted unless the settings say otherwise."""
    chosen = ApiSettings(
        **{"oidc_issuer": provider.issuer, "local_issuer": True, **settings},
        invalid_tokens_per_minute=0,
        refusals_per_minute=0,
    )
    with an_api(database, chosen) as api:
        state = the_server()[0].state
        own = [TrustedIssuer(ISSUER.issuer, ISSUER)] if chosen.takes_local_tokens else []
        theirs = trusted_provider(chosen, clock=clock or Clock())
        assert theirs is not None
        state.parts = replace(state.parts, verifier=Verifier.of(chosen, *own, theirs))
        yield api
