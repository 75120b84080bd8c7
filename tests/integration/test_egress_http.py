"""Calls to endpoints, over real sockets: what is sent, what is refused, and that the deadline holds."""

from __future__ import annotations

import gzip
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import cycle, islice

import pytest
import trustme
from pytest_httpserver import HTTPServer
from werkzeug import Request, Response

from engine.core.errors import Refused, Unavailable
from engine.egress.http import HEAD_LIMIT, RESPONSE_LIMIT, Answer, Destination, OutgoingCall, classify, post

DRIP = 0.1
"""Seconds between two bytes: short enough to renew any limit a read."""

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"

Script = Callable[[socket.socket], None]


def local(_host: str) -> list[str]:
    return ["127.0.0.1"]


def call(
    url: str, *, allow_private: bool = True, headers: dict[str, str] | None = None, body: bytes = b"{}"
) -> OutgoingCall:
    return OutgoingCall(Destination.parse(url, allow_private=allow_private), headers or {}, body, allow_private)


@dataclass
class Endpoint:
    """A raw server: plays `script` on each connection, and keeps what it was sent first."""

    script: Script
    port: int = 0
    names: list[str | None] = field(default_factory=list)
    connections: int = 0

    def url(self, scheme: str = "http", host: str = "127.0.0.1") -> str:
        return f"{scheme}://{host}:{self.port}/in?key=sesame"


@contextmanager
def endpoint(script: Script, tls: ssl.SSLContext | None = None) -> Iterator[Endpoint]:
    """Run an endpoint until the block ends; every thread of it has then ended too."""
    played = Endpoint(script)
    threads: list[threading.Thread] = []
    closing = threading.Event()

    def play(connection: socket.socket) -> None:
        with suppress(OSError):
            connection.settimeout(5)
            if tls is not None:
                connection = tls.wrap_socket(connection, server_side=True)
            with connection:
                script(connection)
        connection.close()

    def listen(listener: socket.socket) -> None:
        while True:
            connection, _ = listener.accept()
            if closing.is_set():
                connection.close()
                return
            played.connections += 1
            threads.append(threading.Thread(target=play, args=(connection,)))
            threads[-1].start()

    if tls is not None:
        tls.sni_callback = lambda _socket, name, _context: played.names.append(name)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        played.port = listener.getsockname()[1]
        acceptor = threading.Thread(target=listen, args=(listener,))
        acceptor.start()
        try:
            yield played
        finally:
            closing.set()
            socket.create_connection(("127.0.0.1", played.port)).close()  # wakes the acceptor, and is the last
            acceptor.join()
            for thread in threads:
                thread.join()


def whole_request(connection: socket.socket) -> bytes:
    """What came up to the end of the body of `call()`, or to the end of it all."""
    read = b""
    while not read.endswith(b"\r\n\r\n{}"):
        piece = connection.recv(65536)
        if not piece:
            break
        read += piece
    return read


def answering(answer: bytes, *, drip: bytes = b"") -> Script:
    """Read the request, send `answer`, then `drip` over and over, a byte at a time, for longer than any test waits."""

    def script(connection: socket.socket) -> None:
        whole_request(connection)
        connection.sendall(answer)
        for byte in islice(cycle(drip), 30):
            connection.sendall(bytes([byte]))
            time.sleep(DRIP)

    return script


def flooding(head: bytes, piece: bytes) -> Script:
    """Read the request, send `head`, then `piece` until the other side has gone."""

    def script(connection: socket.socket) -> None:
        whole_request(connection)
        connection.sendall(head)
        while True:
            connection.sendall(piece)

    return script


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def server_tls(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("hooks.example", "127.0.0.1").configure_cert(context)
    return context


@pytest.fixture(scope="module")
def trusting(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


# What is sent


def test_an_endpoint_gets_the_body_and_the_headers_and_no_more(httpserver: HTTPServer) -> None:
    seen: list[Request] = []

    def answer(request: Request) -> Response:
        request.get_data()
        seen.append(request)
        return Response("thanks", 202)

    httpserver.expect_request("/in", method="POST", query_string="k=v").respond_with_handler(answer)
    sent = {"Content-Type": "application/json", "Webhook-Id": "wsa_1", "User-Agent": "ProudAuth-Workflows/1"}
    answered = post(call(httpserver.url_for("/in?k=v"), headers=sent, body=b'{"a":1}'), deadline=5)
    assert (answered.status, answered.retry_after_seconds) == (202, None)
    assert 0 < answered.elapsed < 5
    assert seen[0].get_data() == b'{"a":1}'
    assert dict(seen[0].headers) == {
        "Host": f"{httpserver.host}:{httpserver.port}",
        "Content-Length": "7",
        "Accept-Encoding": "identity",
        "Connection": "close",
        **sent,
    }


def test_the_name_is_resolved_once_and_shown_to_the_endpoint_whose_address_was_checked(
    server_tls: ssl.SSLContext, trusting: ssl.SSLContext
) -> None:
    asked: list[str] = []

    def rebinding(host: str) -> Sequence[str]:
        asked.append(host)
        return ["127.0.0.1"] if len(asked) == 1 else ["127.0.0.2"]

    requests: list[bytes] = []

    def script(connection: socket.socket) -> None:
        requests.append(whole_request(connection))
        connection.sendall(OK)

    with endpoint(script, server_tls) as served:
        answered = post(call(served.url("https", "hooks.example")), deadline=5, resolve=rebinding, tls=trusting)
    assert answered.status == 200
    assert asked == ["hooks.example"]
    assert served.names == ["hooks.example"]
    assert f"Host: hooks.example:{served.port}\r\n".encode() in requests[0]


def test_an_address_literal_is_checked_against_its_certificate(
    server_tls: ssl.SSLContext, trusting: ssl.SSLContext
) -> None:
    with endpoint(answering(OK), server_tls) as served:
        assert post(call(served.url("https")), deadline=5, tls=trusting).status == 200


def test_the_next_address_is_tried_when_the_first_does_not_answer() -> None:
    with endpoint(answering(OK)) as served:

        def two(_host: str) -> list[str]:
            return ["127.0.0.2", "127.0.0.1"]  # nothing listens on the first

        assert post(call(served.url(host="hooks.example")), deadline=5, resolve=two).status == 200


@pytest.mark.parametrize("case", ["other name", "authority not trusted"])
def test_a_certificate_that_does_not_fit_ends_the_call_before_anything_is_sent(
    case: str, server_tls: ssl.SSLContext, trusting: ssl.SSLContext
) -> None:
    host, tls = ("other.example", trusting) if case == "other name" else ("hooks.example", None)
    received: list[bytes] = []
    with (
        endpoint(lambda connection: received.append(connection.recv(1)), server_tls) as served,
        pytest.raises(Unavailable, match="certificate") as failure,
    ):
        post(call(served.url("https", host)), deadline=5, resolve=local, tls=tls)
    assert failure.value.category == "network_error"
    assert b"".join(received) == b""


def test_a_context_that_checks_nothing_is_a_bug(server_tls: ssl.SSLContext) -> None:
    lax = ssl.create_default_context()
    lax.check_hostname = False
    with endpoint(answering(OK), server_tls) as served, pytest.raises(ValueError, match="checks no certificate"):
        post(call(served.url("https")), deadline=5, tls=lax)


def test_proxies_and_netrc_of_the_environment_are_not_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    netrc = tmp_path_factory.mktemp("home") / "netrc"
    netrc.write_text("machine 127.0.0.1 login who password sesame\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    requests: list[bytes] = []

    def script(connection: socket.socket) -> None:
        requests.append(whole_request(connection))
        connection.sendall(OK)

    with endpoint(answering(OK)) as proxy, endpoint(script) as served:
        for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        assert post(call(served.url()), deadline=5).status == 200
    assert proxy.connections == 0
    assert b"authorization" not in requests[0].lower()


@pytest.mark.parametrize(
    "headers",
    [
        {"X": "a\r\nB: c"},
        {"X\r\n": "a"},
        {"X": "é"},
        {"X": ""},
        {"Host": "h"},
        {"content-length": "1"},
        {"Connection": "x"},
    ],
)
def test_headers_that_would_change_the_request_are_a_bug(headers: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="cannot be sent"):
        call("https://h.example/", headers=headers)


def test_many_calls_at_once_do_not_disturb_each_other(httpserver: HTTPServer) -> None:
    httpserver.expect_request("/in").respond_with_handler(lambda request: Response(status=200 + int(request.args["n"])))
    with ThreadPoolExecutor(32) as pool:
        answers = list(pool.map(lambda n: post(call(httpserver.url_for(f"/in?n={n % 7}")), deadline=10), range(64)))
    assert [answer.status for answer in answers] == [200 + n % 7 for n in range(64)]


# What is refused

ATTACKS = [
    "https://127.0.0.1:{port}/",
    "https://127.1:{port}/",
    "https://127.0.1:{port}/",
    "https://2130706433:{port}/",
    "https://017700000001:{port}/",
    "https://0177.0.0.1:{port}/",
    "https://0x7f000001:{port}/",
    "https://0x7f.0x0.0x0.0x1:{port}/",
    "https://127.0.0.1.:{port}/",
    "https://0.0.0.0:{port}/",
    "https://0:{port}/",
    "https://１２７.0.0.1:{port}/",
    "https://127。0。0。1:{port}/",
    "https://[::1]:{port}/",
    "https://[::]:{port}/",
    "https://[0:0:0:0:0:ffff:127.0.0.1]:{port}/",
    "https://[::ffff:7f00:1]:{port}/",
    "https://[::127.0.0.1]:{port}/",
    "https://[64:ff9b::7f00:1]:{port}/",
    "https://[2002:7f00:1::]:{port}/",
    "https://[fe80::1%25lo]:{port}/",
    "https://[fd00:ec2::254]:{port}/",
    "https://169.254.169.254:{port}/latest/meta-data",
    "https://localhost:{port}/",
    "https://metadata.example:{port}/",
    "https://mixed.example:{port}/",
    "https://mapped.example:{port}/",
    "https://linked.example:{port}/",
    "https://public.example@127.0.0.1:{port}/",
    "https://public.example\\@127.0.0.1:{port}/",
    "https://public.example%2f@127.0.0.1:{port}/",
    "http://127.0.0.1:{port}/",
    "gopher://127.0.0.1:{port}/",
    "file:///etc/passwd",
]

ZONE = {
    "localhost": ["127.0.0.1", "::1"],
    "metadata.example": ["169.254.169.254"],
    "mixed.example": ["93.184.216.34", "127.0.0.1"],
    "mapped.example": ["::ffff:127.0.0.1"],
    "linked.example": ["fe80::1%eth0"],
}


def test_no_way_to_write_an_inner_address_gets_there() -> None:
    with endpoint(answering(OK)) as inner:
        for attack in ATTACKS:
            with pytest.raises((Refused, Unavailable)) as refusal:
                post(call(attack.format(port=inner.port), allow_private=False), deadline=5, resolve=ZONE.__getitem__)
            assert refusal.value.category in {"invalid_destination", "egress_denied"}, attack
    assert inner.connections == 0


@pytest.mark.parametrize(
    "address", ["169.254.169.254", "fd00:ec2::254", "0.0.0.0", "224.0.0.1", "::ffff:127.0.0.1", "::"]
)
def test_allowing_private_addresses_allows_no_others(address: str) -> None:
    with pytest.raises(Unavailable) as refusal:
        post(call("https://inner.example/"), deadline=5, resolve=lambda _host: ["127.0.0.1", address])
    assert refusal.value.category == "egress_denied"
    assert address not in str(refusal.value)


def test_http_to_a_name_that_leads_out_of_the_private_network_is_denied() -> None:
    with pytest.raises(Unavailable, match="https only") as refusal:
        post(call("http://inner.example/"), deadline=5, resolve=lambda _host: ["10.0.0.1", "93.184.216.34"])
    assert refusal.value.category == "egress_denied"


def test_a_name_without_an_address_is_a_network_error() -> None:
    def unknown(_host: str) -> list[str]:
        raise socket.gaierror("no such name")

    def empty(_host: str) -> list[str]:
        return []

    for resolve in (unknown, empty):
        with pytest.raises(Unavailable) as failure:
            post(call("https://nowhere.example/"), deadline=5, resolve=resolve)
        assert failure.value.category == "network_error"


def test_a_closed_port_is_a_network_error_and_no_message_tells_path_or_query() -> None:
    with endpoint(answering(OK)) as served:
        url = served.url()
    with pytest.raises(Unavailable) as failure:
        post(call(url), deadline=5)
    assert failure.value.category == "network_error"
    assert "sesame" not in str(failure.value)
    assert failure.value.__suppress_context__


# The deadline


@contextmanager
def cut_at_one_second() -> Iterator[None]:
    """The block runs into its deadline of a second and ends soon after, as a timeout."""
    started = time.monotonic()
    with pytest.raises(Unavailable) as failure:
        yield
    assert failure.value.category == "timeout"
    assert "sesame" not in str(failure.value)
    assert 0.9 < time.monotonic() - started < 10


def handshaking(connection: socket.socket, context: ssl.SSLContext) -> None:
    """Answer a client's hello with a real flight of TLS, a byte at a time."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = context.wrap_bio(incoming, outgoing, server_side=True)
    incoming.write(connection.recv(65536))
    with suppress(ssl.SSLWantReadError):
        server.do_handshake()
    for byte in outgoing.read()[:30]:
        connection.sendall(bytes([byte]))
        time.sleep(DRIP)


def silent(connection: socket.socket) -> None:
    while connection.recv(65536):
        pass


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
SLOW = {
    "silence": silent,
    "status line": answering(b"", drip=b"HTTP/1.1 200 OK\r\n"),
    "headers": answering(b"HTTP/1.1 200 OK\r\n", drip=b"X-Slow: aaaaaaaaaaaa"),
    "interim answers": answering(b"", drip=b"HTTP/1.1 100 Continue\r\n\r\n"),
    "body": answering(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n", drip=b"a" * 16),
    "body without length": answering(b"HTTP/1.1 200 OK\r\n\r\n", drip=b"a" * 16),
    "chunks": answering(CHUNKED, drip=b"1\r\na\r\n" * 3),
    "chunk size": answering(CHUNKED, drip=b"0" * 16),
    "trailers": answering(CHUNKED + b"0\r\n", drip=b"X: aaaaaaaaaaaaa"),
}


def test_a_drip_anywhere_is_cut_at_the_deadline(server_tls: ssl.SSLContext, trusting: ssl.SSLContext) -> None:
    """In clear text, inside TLS and in its handshake: all at once, so that the test takes as long as one of them."""

    def cut(script: Script, scheme: str, tls: ssl.SSLContext | None) -> str:
        with endpoint(script, tls) as served, cut_at_one_second():
            post(call(served.url(scheme)), deadline=1, tls=trusting)
        return "cut"

    record = b"\x16\x03\x03\x3f\x00\x02\x00\x3e\xfc"  # takes 16,000 bytes more
    cases: dict[str, tuple[Script, str, ssl.SSLContext | None]] = {
        **{part: (script, "http", None) for part, script in SLOW.items()},
        **{f"{part} in TLS": (script, "https", server_tls) for part, script in SLOW.items()},
        "a real handshake": (lambda connection: handshaking(connection, server_tls), "https", None),
        "a record without an end": (answering(record, drip=b"\x00"), "https", None),
    }
    with ThreadPoolExecutor(len(cases)) as pool:
        outcomes = {part: pool.submit(cut, *case) for part, case in cases.items()}
    assert {part: outcome.result() for part, outcome in outcomes.items()} == dict.fromkeys(cases, "cut")


def test_an_endpoint_that_does_not_read_is_cut_at_the_deadline() -> None:
    done = threading.Event()

    def script(connection: socket.socket) -> None:
        done.wait(5)

    with endpoint(script) as served:
        with cut_at_one_second():
            post(call(served.url(), body=b"x" * 50_000_000), deadline=1)
        done.set()


def test_a_name_server_that_hangs_is_left_behind_at_the_deadline() -> None:
    asked = threading.Event()
    released = threading.Event()

    def hanging(_host: str) -> list[str]:
        asked.set()
        released.wait(10)
        return ["127.0.0.1"]

    try:
        with cut_at_one_second():
            post(call("https://slow.example/"), deadline=1, resolve=hanging)
        assert asked.is_set()
    finally:
        released.set()


def test_an_address_that_swallows_connections_is_cut_at_the_deadline() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        port = full.getsockname()[1]
        waiting = [socket.socket() for _ in range(4)]
        try:
            for client in waiting:
                client.setblocking(False)
                client.connect_ex(("127.0.0.1", port))
            with cut_at_one_second():
                post(call(f"http://127.0.0.1:{port}/in?key=sesame"), deadline=1)
        finally:
            for client in waiting:
                client.close()


# Too much of everything


def test_a_body_is_read_to_its_limit_and_cut_there() -> None:
    sent = 0

    def script(connection: socket.socket) -> None:
        nonlocal sent
        connection.recv(65536)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n")
        while True:
            sent += connection.send(b"a" * 4096)

    with endpoint(script) as served:
        answered = post(call(served.url()), deadline=5)
    assert answered.status == 200
    assert answered.elapsed < 5
    assert RESPONSE_LIMIT - HEAD_LIMIT <= sent < 16 * 1024 * 1024  # the rest is the kernel's buffers


@pytest.mark.parametrize("piece", [b"1\r\na\r\n", b"1000\r\n" + b"a" * 4096 + b"\r\n", b"1;x=y\r\na\r\n"])
def test_an_endless_chunked_body_is_cut(piece: bytes) -> None:
    with endpoint(flooding(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", piece * 100)) as served:
        computing = time.thread_time()
        answered = post(call(served.url()), deadline=5)
    assert answered.status == 200
    assert time.thread_time() - computing < 2


def test_a_compressed_body_is_never_inflated() -> None:
    bomb = gzip.compress(bytes(30_000_000))
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(bomb)
    with endpoint(answering(head + bomb)) as served:
        answered = post(call(served.url()), deadline=5)
    assert answered.status == 200
    assert answered.elapsed < 5


@pytest.mark.parametrize(
    "piece",
    [
        b"X: y\r\n" * 100,
        b"HTTP/1.1 100 Continue\r\n\r\n" * 100,
        b"HTTP/1.1 103 Early Hints\r\nX: y\r\n\r\n" * 100,
        b"a" * 4096,
        b"\r\n" * 1000,
    ],
    ids=["headers", "100", "103", "one line", "empty lines"],
)
@pytest.mark.parametrize("secure", [False, True])
def test_an_endless_head_is_cut(
    piece: bytes, secure: bool, server_tls: ssl.SSLContext, trusting: ssl.SSLContext
) -> None:
    head = b"" if piece.startswith((b"HTTP", b"\r")) else b"HTTP/1.1 200 OK\r\nA: "
    started = time.monotonic()
    with (
        endpoint(flooding(head, piece), server_tls if secure else None) as served,
        pytest.raises(Unavailable) as failure,
    ):
        post(call(served.url("https" if secure else "http")), deadline=5, tls=trusting)
    assert failure.value.category == "network_error"
    assert time.monotonic() - started < 10


def test_two_hundred_thousand_headers_are_not_read() -> None:
    many = b"".join(b"X-%d: y\r\n" % n for n in range(200_000))
    with (
        endpoint(answering(b"HTTP/1.1 200 OK\r\n" + many + b"\r\n")) as served,
        pytest.raises(Unavailable) as failure,
    ):
        post(call(served.url()), deadline=5)
    assert failure.value.category == "network_error"


NONSENSE = [
    b"",
    b"\x00",
    b"hello\r\n\r\n",
    b"HTTP/1.1\r\n\r\n",
    b"HTTP/1.1 0 X\r\n\r\n",
    b"HTTP/1.1 099 X\r\n\r\n",
    b"HTTP/1.1 20 X\r\n\r\n",
    b"HTTP/1.1 2000 X\r\n\r\n",
    b"HTTP/1.1 -20 X\r\n\r\n",
    b"HTTP/2 200\r\n\r\n",
    b"HTTP/1.1 200 OK\r\n: x\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nA B: x\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nA: \x00\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\naXX0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"f" * 30 + b"\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nbad trailer\r\n\r\n",
]


@pytest.mark.parametrize("nonsense", NONSENSE)
def test_an_answer_that_is_not_http_is_a_network_error(nonsense: bytes) -> None:
    with endpoint(answering(nonsense)) as served, pytest.raises(Unavailable) as failure:
        post(call(served.url()), deadline=5)
    assert failure.value.category == "network_error"


def test_an_answer_in_clear_text_where_tls_was_expected_is_a_network_error() -> None:
    with (
        endpoint(lambda connection: connection.sendall(OK)) as served,
        pytest.raises(Unavailable) as failure,
    ):
        post(call(served.url("https")), deadline=5)
    assert failure.value.category == "network_error"


def test_an_endpoint_that_answers_before_it_has_read_everything_is_heard() -> None:
    def script(connection: socket.socket) -> None:
        connection.recv(1000)
        connection.sendall(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")

    with endpoint(script) as served:
        assert post(call(served.url(), body=b"x" * 20_000_000), deadline=5).status == 413


# What an answer means


def test_a_redirect_is_not_followed() -> None:
    with endpoint(answering(OK)) as other:
        moved = f"HTTP/1.1 307 Moved\r\nLocation: {other.url()}\r\nContent-Length: 0\r\n\r\n".encode()
        with endpoint(answering(moved)) as served:
            answered = post(call(served.url()), deadline=5)
    failure = classify(answered)
    assert isinstance(failure, Unavailable)
    assert failure.category == "http_307"
    assert other.connections == 0


def test_a_switch_of_protocols_is_no_answer() -> None:
    switching = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"
    with endpoint(answering(switching)) as served, pytest.raises(Unavailable) as failure:
        post(call(served.url()), deadline=5)
    assert failure.value.category == "network_error"


def test_interim_answers_before_the_answer_are_passed_over() -> None:
    with endpoint(answering(b"HTTP/1.1 103 Early Hints\r\n\r\n" * 5 + OK)) as served:
        assert post(call(served.url()), deadline=5).status == 200


@pytest.mark.parametrize("status", [200, 201, 204, 299])
def test_any_2xx_completes_the_step(status: int) -> None:
    assert classify(Answer(status, None, 0.1)) is None


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 418, 422, 451, 499])
def test_a_4xx_fails_the_step_for_good(status: int) -> None:
    failure = classify(Answer(status, None, 0.1))
    assert isinstance(failure, Refused)
    assert failure.category == f"http_{status}"


def test_410_fails_the_step_for_good_as_gone() -> None:
    failure = classify(Answer(410, None, 0.1))
    assert isinstance(failure, Refused)
    assert failure.category == "gone"


@pytest.mark.parametrize("status", [101, 300, 302, 304, 308, 408, 429, 500, 502, 503, 504, 599])
def test_every_other_status_is_tried_again(status: int) -> None:
    failure = classify(Answer(status, None, 0.1))
    assert isinstance(failure, Unavailable)
    assert failure.category == f"http_{status}"


@pytest.mark.parametrize("status", [600, 999])
def test_a_status_that_http_does_not_have_is_tried_again(status: int) -> None:
    failure = classify(Answer(status, None, 0.1))
    assert isinstance(failure, Unavailable)
    assert failure.category == "network_error"


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        (b"Retry-After: 120", 120),
        (b"retry-after:  0 ", 0),
        (b"Retry-After: Sat, 10 Oct 2026 12:01:30 GMT\r\nDate: Sat, 10 Oct 2026 12:00:00 GMT", 90),
        (b"Retry-After: Sat, 10 Oct 2026 11:00:00 GMT\r\nDate: Sat, 10 Oct 2026 12:00:00 GMT", 0),
        (b"Retry-After: Sat, 10 Oct 2026 12:01:30 GMT", None),
        (b"Retry-After: -5", None),
        (b"Retry-After: 1e3", None),
        (b"Retry-After: " + b"9" * 400, None),
        (b"Retry-After: Sat, 99 Oct 99999 12:01:30 GMT\r\nDate: x", None),
        (b"Retry-After: \xff\xfe", None),
        (b"X: y", None),
    ],
)
def test_retry_after_is_read_without_a_clock_of_ours(headers: bytes, seconds: int | None) -> None:
    answer = b"HTTP/1.1 503 Later\r\nContent-Length: 0\r\n" + headers + b"\r\n\r\n"
    with endpoint(answering(answer)) as served:
        assert post(call(served.url()), deadline=5).retry_after_seconds == seconds
