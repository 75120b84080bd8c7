"""The real application on a real server over a real database, and callers with real tokens.

with an_api(database) as api:            the API, called by the administrator of a new realm
api.post("/users", {...}).json()         as the realm's administrator
api.by(ada).get("/workflows")            as another user
api.by(ada, "account").get("/me/...")    in self-service
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cache
from typing import Any

import httpx
import uvicorn
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from fastapi import FastAPI

from api.app import create_app
from api.issuer import LocalIssuer
from api.parts import Parts
from api.server import served
from api.settings import ApiSettings
from api.tokens import Audience
from db.session import Database
from tests.factories import KEYRING, TestRealm, a_realm

LOCAL_KEY = Ed25519PrivateKey.generate()
ISSUER = LocalIssuer(LOCAL_KEY)

PATIENT = ApiSettings(invalid_tokens_per_minute=0, refusals_per_minute=0)
"""Any number of failures: tests refuse thousands of times."""


@dataclass(frozen=True)
class Api:
    """A caller of the API in one realm."""

    client: httpx.Client
    realm: TestRealm
    token: str | None
    realm_id: str

    def by(self, user_id: str, audience: Audience = "admin", *, mfa: bool = True) -> Api:
        """The same API, called by another user of the realm."""
        token = ISSUER.issue(self.realm.id, user_id, audience, timedelta(minutes=5), mfa=mfa)
        return replace(self, token=token)

    def with_token(self, token: str | None) -> Api:
        """The same API, called with this token."""
        return replace(self, token=token)

    def at(self, realm: TestRealm) -> Api:
        """The same API, called by the administrator of another realm."""
        return caller(self.client, realm)

    def url(self, path: str) -> str:
        """A path within the realm."""
        return f"/api/v1/realms/{self.realm_id}{path}"

    def call(self, method: str, path: str, body: Any = ..., **rest: Any) -> httpx.Response:
        """Any request within the realm; `body` is sent as JSON."""
        headers = {} if self.token is None else {"Authorization": f"Bearer {self.token}"}
        headers |= rest.pop("headers", {})
        if body is not ...:
            rest["json"] = body
        return self.client.request(method, self.url(path), headers=headers, **rest)

    def get(self, path: str, **query: Any) -> httpx.Response:
        """GET."""
        return self.call("GET", path, params=query)

    def post(self, path: str, body: Any = ..., **rest: Any) -> httpx.Response:
        """POST."""
        return self.call("POST", path, body, **rest)

    def patch(self, path: str, body: Any = ...) -> httpx.Response:
        """PATCH."""
        return self.call("PATCH", path, body)

    def delete(self, path: str) -> httpx.Response:
        """DELETE."""
        return self.call("DELETE", path)


def caller(client: httpx.Client, realm: TestRealm) -> Api:
    """The realm's administrator."""
    token = ISSUER.issue(realm.id, realm.admin, "admin", timedelta(minutes=5))
    return Api(client, realm, token, realm.id)


@contextmanager
def an_api(database: Database, settings: ApiSettings = PATIENT) -> Iterator[Api]:
    """The API over a database, and a realm in it. Of the settings, those of tokens and failures are of this call alone."""
    app, base_url = the_server()
    before = getattr(app.state, "parts", None)
    app.state.parts = Parts.open(settings, database, KEYRING, ISSUER)
    with httpx.Client(base_url=base_url, timeout=30) as client:
        yield caller(client, a_realm(database))
    app.state.parts = before


@cache
def the_server() -> tuple[FastAPI, str]:
    """One application and one server for all tests of a process; each gives it the parts it is to work with."""
    app = create_app()
    return app, serve(app)


def serve(app: FastAPI, settings: ApiSettings = PATIENT) -> str:
    """Serve an application from a thread until the process ends, without its lifespan. Returns its address."""
    return address_of(a_server(app, settings))


def a_server(app: FastAPI, settings: ApiSettings) -> uvicorn.Server:
    """The same. Returns the server."""
    server = served(app, settings, "127.0.0.1", 0, lifespan="off", log_config=None, access_log=False)
    threading.Thread(target=server.run, daemon=True, name="api").start()
    deadline = time.monotonic() + 10
    while not server.started:
        assert time.monotonic() < deadline, "the server did not start"
        time.sleep(0.01)
    return server


def address_of(server: uvicorn.Server) -> str:
    """Where it is."""
    return f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"


def problem(answer: httpx.Response, status: int, code: str) -> Any:
    """The problem that the answer must be: problem+json with this status and code, and nothing more than it may have."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    body = answer.json()
    assert body["code"] == code, body
    assert body["status"] == status
    assert body["type"] == f"urn:tenure:problem:{code}"
    assert set(body) <= {"type", "title", "status", "detail", "code", "errors"}
    return body


def paths(answer: httpx.Response) -> list[str]:
    """The members that a 422 names."""
    return [error["path"] for error in problem(answer, 422, "validation_failed")["errors"]]
