"""Who is not let in has no body read, and whoever is has few parsed at once."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.calling import Api, problem
from tests.factories import a_realm

MEGABYTE = b"[" + b"{}," * 340_000 + b"{}]"
"""Takes a second to parse, and twenty times its size."""
FAULT = 30.0

Stranger = Callable[[Api], tuple[Api, int, str]]

STRANGERS: dict[str, Stranger] = {
    "no token": lambda api: (api.with_token(None), 401, "unauthenticated"),
    "a token of nobody": lambda api: (api.with_token("a.b.c"), 401, "unauthenticated"),
    "another audience": lambda api: (api.by(api.realm.admin, "account"), 401, "unauthenticated"),
    "one factor": lambda api: (api.by(api.realm.admin, mfa=False), 403, "mfa_required"),
    "another realm": lambda api: (api.at(a_realm(api.realm.database)), 404, "not_found"),
}


def told_before_the_body(api: Api, caller: Api) -> httpx.Response:
    """The answer to a head that announces a body which is never sent."""
    token = "" if caller.token is None else f"Authorization: Bearer {caller.token}\r\n"
    head = (
        f"POST {api.url('/users')} HTTP/1.1\r\nHost: api\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(MEGABYTE)}\r\nConnection: close\r\n{token}\r\n"
    )
    url = api.client.base_url
    with (
        socket.create_connection((url.host, url.port or 0), timeout=FAULT) as connection,
        connection.makefile("rb") as reader,
    ):
        connection.sendall(head.encode())
        status = int(reader.readline().split()[1])
        headers: dict[str, str] = {}
        while line := reader.readline().strip():
            name, _, value = line.decode().partition(": ")
            headers[name] = value
        return httpx.Response(status, headers=headers, content=reader.read(int(headers["content-length"])))


@pytest.mark.parametrize("name", STRANGERS)
def test_whoever_is_not_let_in_is_told_so_before_they_have_sent_a_body(api: Api, name: str) -> None:
    caller, status, code = STRANGERS[name](api)
    problem(told_before_the_body(api, caller), status, code)


def sent(api: Api, body: bytes) -> httpx.Response:
    return api.call("POST", "/users", content=body, headers={"Content-Type": "application/json"})


def test_large_bodies_of_nobody_cost_nothing(api: Api) -> None:
    """Parsed, these would take some thirty seconds of both cores."""
    with ThreadPoolExecutor(30) as threads:
        answers = [threads.submit(sent, api.with_token(None), MEGABYTE) for _ in range(30)]
        assert api.get("/users").status_code == 200
        for each in answers:
            problem(each.result(FAULT), 401, "unauthenticated")


def test_large_bodies_of_callers_are_parsed_few_at_once(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    from api import bodies

    at_once, most, lock = 0, 0, threading.Lock()
    read = bodies.load

    def watched(raw: bytes, limit: int) -> Any:
        nonlocal at_once, most
        with lock:
            at_once += 1
            most = max(most, at_once)
        try:
            return read(raw, limit)
        finally:
            with lock:
                at_once -= 1

    monkeypatch.setattr(bodies, "load", watched)
    large = MEGABYTE[: 3 * 100_000] + b"{}]"
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda _: sent(api, large).status_code, range(8)))
    assert answers == [422] * 8
    assert most <= 2
