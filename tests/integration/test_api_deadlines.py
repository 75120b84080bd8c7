"""Callers who are slow on purpose, and what is no HTTP: each connection ends, and nobody else waits for it."""

from __future__ import annotations

import http.client
import json
import logging
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import BinaryIO

import httpx
import pytest
import uvicorn
from sqlalchemy import text

from api.app import create_app
from api.parts import Parts
from api.settings import ApiSettings
from db.session import Database
from tests.calling import ISSUER, PATIENT, Api, a_server, address_of, caller, problem
from tests.factories import KEYRING, a_realm

A_SECOND = timedelta(seconds=1)
HASTY = PATIENT.model_copy(
    update={"head_deadline": A_SECOND, "body_deadline": A_SECOND, "send_deadline": A_SECOND, "max_connections": 400}
)
FAULT = 30.0
"""Seconds within which what must end has ended. What these callers send would take far longer, or for ever."""

HOST = b"Host: api\r\n"
LIVE = b"GET /health/live HTTP/1.1\r\n" + HOST
CREATE = b"POST /api/v1/realms/rlm/users HTTP/1.1\r\n" + HOST + b"Content-Type: application/json\r\n"


@dataclass(frozen=True)
class Line:
    """A connection as a caller holds it."""

    socket: socket.socket
    reader: BinaryIO

    def send(self, *pieces: bytes) -> None:
        self.socket.sendall(b"".join(pieces))

    def told(self) -> httpx.Response:
        """The next answer."""
        status = int(self.reader.readline().split()[1])
        headers = dict(http.client.parse_headers(self.reader).items())
        return httpx.Response(status, headers=headers, content=self.reader.read(int(headers["content-length"])))

    def require_closed(self) -> None:
        """By us, or after us because of what came too late."""
        with suppress(ConnectionError):
            assert self.reader.read(1) == b""

    def require_refused(self, status: int, code: str) -> None:
        """With a problem that says its request id, and closed."""
        answer = self.told()
        problem(answer, status, code)
        assert answer.headers["x-request-id"].startswith("req_")
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["connection"] == "close"
        self.require_closed()

    @property
    def is_silent(self) -> bool:
        """Whether nothing has come yet: neither an answer nor the end."""
        return not select.select([self.socket], [], [], 0)[0]

    @contextmanager
    def trickling(self, piece: bytes) -> Iterator[None]:
        """Meanwhile a piece is sent ten times a second, for as long as it is taken."""
        over = threading.Event()

        def trickle() -> None:
            with suppress(OSError):
                while not over.wait(0.1):
                    self.send(piece)

        thread = threading.Thread(target=trickle, daemon=True)
        thread.start()
        yield
        over.set()
        thread.join()


@dataclass(frozen=True)
class Served:
    """A server of its own, and its administrator."""

    server: uvicorn.Server
    api: Api

    @property
    def create(self) -> bytes:
        """The head of a request of the administrator that has a body. A stranger's is not waited for."""
        api = self.api
        head = f"POST {api.url('/users')} HTTP/1.1\r\nAuthorization: Bearer {api.token}\r\n"
        return head.encode() + HOST + b"Content-Type: application/json\r\n"

    @contextmanager
    def connected(self, *sent: bytes) -> Iterator[Line]:
        """A connection over which this was sent."""
        port = httpx.URL(address_of(self.server)).port or 0
        with (
            socket.create_connection(("127.0.0.1", port), timeout=FAULT) as connection,
            connection.makefile("rb") as reader,
        ):
            line = Line(connection, reader)
            line.send(*sent)
            yield line

    def holds(self, line: Line) -> bool:
        """Whether the server still has its end."""
        here = line.socket.getsockname()
        return any(getattr(each, "client", None) == here for each in list(self.server.server_state.connections))


@contextmanager
def a_served(database: Database, settings: ApiSettings) -> Iterator[Served]:
    app = create_app(settings=settings)
    app.state.parts = Parts.open(settings, database, KEYRING, ISSUER)
    server = a_server(app, settings)
    with httpx.Client(base_url=address_of(server), timeout=FAULT) as client:
        yield Served(server, caller(client, a_realm(database)))


@pytest.fixture(scope="module")
def hasty(module_database: Database) -> Iterator[Served]:
    with a_served(module_database, HASTY) as served:
        yield served


@pytest.fixture
def quiet_log(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Nothing of all this is an error of ours, or worth more than a line."""
    yield
    for record in caplog.records:
        assert record.exc_info is None, caplog.text
        assert record.levelno < logging.ERROR or record.name == "uvicorn.error", caplog.text


pytestmark = pytest.mark.usefixtures("quiet_log")


def until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + FAULT
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


@pytest.mark.parametrize("sent", [b"", b"G", LIVE, LIVE + b"A: b\r\n"], ids=["nothing", "a byte", "a line", "headers"])
def test_a_head_that_does_not_come_is_not_waited_for(hasty: Served, sent: bytes) -> None:
    with hasty.connected(sent) as line:
        line.require_refused(408, "request_timeout")


def test_a_head_that_comes_byte_by_byte_has_one_deadline(hasty: Served) -> None:
    with hasty.connected(LIVE + b"A: ") as line, line.trickling(b"x"):
        line.require_refused(408, "request_timeout")


def test_a_later_head_on_the_same_connection_has_a_deadline_too(hasty: Served) -> None:
    with hasty.connected(LIVE, b"\r\n") as line:
        assert line.told().status_code == 200
        line.send(LIVE + b"A: ")
        with line.trickling(b"x"):
            line.require_refused(408, "request_timeout")


def test_a_head_that_began_behind_another_request_has_a_deadline_too(hasty: Served) -> None:
    with hasty.connected(LIVE, b"\r\n", LIVE, b"A: ") as line, line.trickling(b"x"):
        assert line.told().status_code == 200
        line.require_refused(408, "request_timeout")


@pytest.mark.parametrize(
    ("framed", "piece"),
    [(b"Content-Length: 1000\r\n\r\n", b" "), (b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n")],
    ids=["announced", "chunked"],
)
def test_a_body_has_one_deadline_for_all_of_it(hasty: Served, framed: bytes, piece: bytes) -> None:
    with hasty.connected(hasty.create, framed, piece) as line, line.trickling(piece):
        line.require_refused(408, "request_timeout")


def test_a_body_that_was_asked_for_and_does_not_come_is_not_waited_for(hasty: Served) -> None:
    with hasty.connected(hasty.create, b"Expect: 100-continue\r\nContent-Length: 5\r\n\r\n") as line:
        assert line.reader.read(25) == b"HTTP/1.1 100 Continue\r\n\r\n"
        line.require_refused(408, "request_timeout")


def test_the_rest_of_a_body_that_nobody_reads_is_not_waited_for(hasty: Served) -> None:
    for head, status in ((LIVE + b"Content-Length: 1000", 200), (CREATE + b"Content-Length: 9000000", 413)):
        with hasty.connected(head, b"\r\n\r\n") as line, line.trickling(b"x"):
            assert line.told().status_code == status
            line.require_closed()


def test_the_rest_of_a_body_that_comes_late_does_not_keep_a_connection(hasty: Served) -> None:
    with hasty.connected(LIVE + b"Content-Length: 5\r\n\r\n") as line:
        assert line.told().status_code == 200
        line.send(b"12345")
        line.require_refused(408, "request_timeout")


def test_a_connection_outlives_many_requests_with_bodies(hasty: Served) -> None:
    body = b'{"email": 1}'
    request = hasty.create + b"Content-Length: %d\r\n\r\n" % len(body) + body
    with hasty.connected() as line:
        for _ in range(3):
            line.send(request[:-4])
            line.send(request[-4:])
            problem(line.told(), 422, "validation_failed")


def test_work_that_takes_longer_than_a_head_or_a_body_may_is_done(hasty: Served, module_database: Database) -> None:
    user = hasty.api.realm.user()
    with ThreadPoolExecutor(1) as threads, module_database.begin() as connection:
        connection.execute(text("SELECT 1 FROM users WHERE id = :id FOR UPDATE"), {"id": user})
        answer = threads.submit(hasty.api.patch, f"/users/{user}", {"display_name": "Ada"})
        with suppress(TimeoutError):
            answer.result(1.5 * A_SECOND.total_seconds())
        connection.rollback()
        assert answer.result(FAULT).status_code == 200


def test_a_turn_may_be_waited_for_longer_than_a_body(module_database: Database) -> None:
    settings = module_database.settings.model_copy(update={"pool_size": 1, "pool_overflow": 0})
    small = Database(module_database.owner_url, module_database.app_url, settings)
    with a_served(small, HASTY) as served, ThreadPoolExecutor(2) as threads, module_database.begin() as connection:
        user = served.api.realm.user()
        connection.execute(text("SELECT 1 FROM users WHERE id = :id FOR UPDATE"), {"id": user})
        answers = [threads.submit(served.api.patch, f"/users/{user}", {"display_name": "Ada"})]
        until(lambda: len(served.server.server_state.tasks) == 1, "it is not at work")
        answers.append(threads.submit(served.api.get, "/users"))
        with suppress(TimeoutError):
            answers[1].result(1.5 * A_SECOND.total_seconds())
        connection.rollback()
        assert [each.result(FAULT).status_code for each in answers] == [200, 200]
    small.close()


def test_a_caller_who_does_not_read_is_let_go(hasty: Served) -> None:
    with hasty.connected(*[b"GET /openapi.json HTTP/1.1\r\n" + HOST + b"\r\n"] * 100) as line:
        assert line.reader.read(4) == b"HTTP"
        until(lambda: not hasty.holds(line), "who does not read is waited for")


def slow_callers(served: Served, stack: ExitStack) -> list[Line]:
    """150 of whose heads and 50 of whose bodies one byte has come."""
    slow = [stack.enter_context(served.connected(b"G")) for _ in range(150)]
    return slow + [
        stack.enter_context(served.connected(served.create, b"Content-Length: 9\r\n\r\n{")) for _ in range(50)
    ]


def test_slow_callers_are_in_nobodys_way(module_database: Database) -> None:
    with a_served(module_database, PATIENT) as served, ExitStack() as stack:
        slow = slow_callers(served, stack)
        for _ in range(5):
            assert served.api.get("/users").status_code == 200
        assert all(each.is_silent for each in slow), "they were all there"


def test_slow_callers_all_go_and_meanwhile_others_are_answered(hasty: Served) -> None:
    with ExitStack() as stack:
        slow = slow_callers(hasty, stack)

        def all_are_gone() -> bool:
            assert hasty.api.get("/users").status_code == 200
            return not any(each.is_silent for each in slow)

        until(all_are_gone, "they are waited for")


def test_when_there_are_too_many_who_has_kept_us_waiting_longest_goes(module_database: Database) -> None:
    with a_served(module_database, PATIENT.model_copy(update={"max_connections": 5})) as served, ExitStack() as stack:
        silent = [stack.enter_context(served.connected(b"G")) for _ in range(20)]
        slow = [stack.enter_context(served.connected(served.create, b"Content-Length: 9\r\n\r\n{")) for _ in range(20)]
        assert served.api.get("/users").status_code == 200
        for each in silent:
            each.require_closed()
        until(lambda: sum(served.holds(each) for each in slow) < 5, "there are too many")


def test_who_was_answered_has_not_kept_us_waiting_since_before(module_database: Database) -> None:
    with (
        a_served(module_database, PATIENT.model_copy(update={"max_connections": 2})) as served,
        served.connected() as busy,
        served.connected() as silent,
    ):
        busy.send(LIVE, b"\r\n")
        assert busy.told().status_code == 200
        with served.connected(LIVE, b"\r\n") as third:
            assert third.told().status_code == 200
            silent.require_closed()
            busy.send(LIVE, b"\r\n")
            assert busy.told().status_code == 200


def test_when_all_are_at_work_one_more_is_told_so(module_database: Database) -> None:
    settings = PATIENT.model_copy(update={"max_connections": 2})
    with a_served(module_database, settings) as served, module_database.begin() as connection:
        user = served.api.realm.user()
        connection.execute(text("SELECT 1 FROM users WHERE id = :id FOR UPDATE"), {"id": user})
        answers: list[int] = []
        threads = [threading.Thread(target=lambda: answers.append(_suspended(served, user))) for _ in range(2)]
        for thread in threads:
            thread.start()
        until(lambda: len(served.server.server_state.tasks) == 2, "they are not at work")
        with served.connected() as third:
            answer = third.told()
            problem(answer, 503, "overloaded")
            assert answer.headers["retry-after"] == "1"
            third.require_closed()
        assert answers == [], "who is at work stays"
        connection.rollback()
        for thread in threads:
            thread.join(FAULT)
        assert answers == [200, 200]


def _suspended(served: Served, user_id: str) -> int:
    api = served.api
    with httpx.Client(base_url=address_of(served.server), timeout=FAULT) as client:
        return caller(client, api.realm).post(f"/users/{user_id}/suspend").status_code


MALFORMED: dict[str, tuple[bytes, int]] = {
    "no HTTP": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
    "a line of one word": (b"HELLO\r\n\r\n", 400),
    "an old version": (b"GET /health/live\r\n\r\n", 400),
    "no host": (b"GET /health/live HTTP/1.1\r\n\r\n", 400),
    "two hosts": (LIVE + HOST + b"\r\n", 400),
    "a space in a name": (LIVE + b"A b: c\r\n\r\n", 400),
    "NUL in a header": (LIVE + b"A: b\x00c\r\n\r\n", 400),
    "a folded line of nothing": (b"GET / HTTP/1.1\r\n  x\r\n\r\n", 400),
    "two lengths": (LIVE + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", 400),
    "a length and chunks": (CREATE + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    "a negative length": (LIVE + b"Content-Length: -1\r\n\r\n", 400),
    "a length without end": (LIVE + b"Content-Length: " + b"9" * 400 + b"\r\n\r\n", 400),
    "an unknown encoding": (LIVE + b"Transfer-Encoding: gzip, chunked\r\n\r\n", 400),
    "a chunk of no size": (CREATE + b"Transfer-Encoding: chunked\r\n\r\nZZ\r\n", 400),
    "a chunk of no size that nobody reads": (LIVE + b"Transfer-Encoding: chunked\r\n\r\nZZ\r\n", 400),
    "a huge header": (LIVE + b"A: " + b"x" * 200_000 + b"\r\n\r\n", 431),
    "a header that is just too large": (LIVE + b"A: " + b"x" * 17_000 + b"\r\n\r\n", 431),
    "a header without end": (LIVE + b"A: " + b"x" * 17_000, 431),
    "10,000 headers": (LIVE + b"a:b\r\n" * 10_000 + b"\r\n", 431),
    "a huge path": (b"GET /" + b"x" * 100_000 + b" HTTP/1.1\r\n" + HOST + b"\r\n", 431),
    "a huge query": (b"GET /health/live?" + b"x" * 17_000 + b" HTTP/1.1\r\n" + HOST + b"\r\n", 431),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_what_is_no_request_is_refused_with_a_problem(hasty: Served, name: str) -> None:
    sent, status = MALFORMED[name]
    with hasty.connected(sent) as line:
        line.require_refused(status, {400: "bad_request", 431: "head_too_large"}[status])


def test_garbage_behind_a_request_ends_the_connection_behind_its_answer(hasty: Served) -> None:
    with hasty.connected(LIVE, b"\r\n", b"\x00\x00\r\n\r\n") as line:
        assert line.told().status_code == 200
        line.require_refused(400, "bad_request")


@pytest.mark.parametrize("asked", [b"websocket", b"h2c"])
def test_no_connection_becomes_one_of_another_protocol(hasty: Served, asked: bytes) -> None:
    upgrade = b"Connection: Upgrade\r\nUpgrade: " + asked + b"\r\nSec-WebSocket-Version: 13\r\n"
    with hasty.connected(LIVE, upgrade, b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n") as line:
        answer = line.told()
        assert (answer.status_code, json.loads(answer.content)) == (200, {"status": "ok"})


def test_a_head_that_is_just_small_enough_is_read(hasty: Served) -> None:
    with hasty.connected(LIVE, b"A: ", b"x" * 16_000, b"\r\n\r\n") as line:
        assert line.told().status_code == 200


def test_a_server_that_is_stopped_tells_those_it_still_waits_for(module_database: Database) -> None:
    with (
        a_served(module_database, PATIENT) as served,
        served.connected(b"G") as head,
        served.connected(served.create, b"Content-Length: 9\r\n\r\n{") as body,
        served.connected(*[b"GET /openapi.json HTTP/1.1\r\n" + HOST + b"\r\n"] * 100) as answer,
    ):
        until(lambda: all(served.holds(line) for line in (head, body, answer)), "they are not connected")
        until(lambda: len(served.server.server_state.tasks) == 2, "they are not under way")
        served.server.should_exit = True
        head.require_closed()
        body.require_refused(503, "unavailable")
