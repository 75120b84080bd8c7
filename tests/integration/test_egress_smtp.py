"""Messages to a relay: a real SMTP server, and relays that misbehave on raw sockets."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.message import EmailMessage
from email.parser import BytesParser
from email.policy import default
from typing import Any

import pytest
import trustme
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session

from engine.core.errors import Refused, Unavailable
from engine.core.settings import MailSettings
from engine.egress.message import compose
from engine.egress.notice import render
from engine.egress.smtp import Mailer

AT = datetime(2026, 10, 10, 12, 10, tzinfo=UTC)


def message(recipient: str = "u@x.example", sender: str = "t@acme.example", realm: str = "Zoë") -> EmailMessage:
    notice = render("welcome", realm=realm, workflow="Onboarding", at=AT)
    return compose(notice, message_id="ntf_1", sender=sender, recipient=recipient, at=AT)


def settings(port: int, **more: Any) -> MailSettings:
    return MailSettings(host="127.0.0.1", port=port, **{"timeout": timedelta(seconds=5), **more})


@dataclass
class Mailbox:
    """What a relay took, and what it answers to some recipients and senders."""

    refusals: dict[str, str] = field(default_factory=dict)
    received: list[Envelope] = field(default_factory=list)
    peers: list[Any] = field(default_factory=list)
    secure: list[bool] = field(default_factory=list)
    logins: list[bytes] = field(default_factory=list)

    async def handle_MAIL(
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        if address not in self.refusals:
            envelope.mail_from = address
        return self.refusals.get(address, "250 OK")

    async def handle_RCPT(
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        if address not in self.refusals:
            envelope.rcpt_tos.append(address)
        return self.refusals.get(address, "250 OK")

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        if "data" in self.refusals:
            return self.refusals["data"]
        self.received.append(envelope)
        self.peers.append(session.peer)
        self.secure.append(session.ssl is not None)
        return "250 OK"

    def authenticate(
        self, server: SMTP, session: Session, envelope: Envelope, mechanism: str, auth_data: Any
    ) -> AuthResult:
        assert isinstance(auth_data, LoginPassword)
        self.logins.append(auth_data.password)
        return AuthResult(success=auth_data.password == b"sesame", handled=False)


@contextmanager
def relay(mailbox: Mailbox, **options: Any) -> Iterator[int]:
    """A real SMTP server; its port."""
    controller = Controller(mailbox, hostname="127.0.0.1", port=free_port(), **options)
    controller.start()
    try:
        yield controller.port
    finally:
        controller.stop()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def relay_tls(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    return context


@pytest.fixture(scope="module")
def trusting(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


def test_a_notice_arrives_as_it_was_written() -> None:
    mailbox = Mailbox()
    with relay(mailbox) as port:
        Mailer(settings(port)).send(message())
    (envelope,) = mailbox.received
    assert (envelope.mail_from, envelope.rcpt_tos) == ("t@acme.example", ["u@x.example"])
    assert isinstance(envelope.content, bytes)
    parsed = BytesParser(policy=default).parsebytes(envelope.content)
    assert parsed["Subject"] == "Zoë: Welcome: the account is ready"
    assert "Realm: Zoë" in parsed.get_content()


def test_several_messages_share_a_connection() -> None:
    mailbox = Mailbox()
    with relay(mailbox) as port, Mailer(settings(port)).open() as session:
        for number in range(5):
            session.send(message(f"u{number}@x.example"))
    assert [envelope.rcpt_tos for envelope in mailbox.received] == [[f"u{n}@x.example"] for n in range(5)]
    assert len(set(mailbox.peers)) == 1


def test_a_recipient_refused_for_good_does_not_hold_up_the_next() -> None:
    mailbox = Mailbox({"gone@x.example": "550 no such user"})
    with relay(mailbox) as port, Mailer(settings(port)).open() as session:
        with pytest.raises(Refused, match="550") as refusal:
            session.send(message("gone@x.example"))
        session.send(message())
    assert refusal.value.category == "validation_failed"
    assert "gone@x.example" not in str(refusal.value)
    assert len(mailbox.received) == 1


@pytest.mark.parametrize(
    ("who", "answer"),
    [
        ("u@x.example", "451 try later"),
        ("u@x.example", "421 closing"),
        ("t@acme.example", "550 not you"),
        ("data", "451 try later"),
        ("data", "554 no"),
    ],
)
def test_every_other_refusal_is_tried_again_and_the_next_message_goes_out(who: str, answer: str) -> None:
    mailbox = Mailbox({who: answer})
    with relay(mailbox) as port, Mailer(settings(port)).open() as session:
        with pytest.raises(Unavailable, match=answer[:3]) as failure:
            session.send(message())
        mailbox.refusals.clear()
        session.send(message())
    assert failure.value.category == "network_error"
    assert len(mailbox.received) == 1


def test_a_relay_restarted_between_two_messages_is_connected_to_again() -> None:
    first, second = Mailbox(), Mailbox()
    port = free_port()
    controller = Controller(first, hostname="127.0.0.1", port=port)
    controller.start()
    with Mailer(settings(port)).open() as session:
        session.send(message())
        controller.stop()
        controller = Controller(second, hostname="127.0.0.1", port=port)
        controller.start()
        session.send(message())
        controller.stop()
    assert (len(first.received), len(second.received)) == (1, 1)


def test_starttls_is_used_with_a_relay_that_shows_a_valid_certificate(
    relay_tls: ssl.SSLContext, trusting: ssl.SSLContext
) -> None:
    mailbox = Mailbox()
    with (
        relay(mailbox, tls_context=relay_tls, require_starttls=True) as port,
        Mailer(settings(port, starttls=True), tls=trusting).open() as session,
    ):
        session.send(message())
        session.send(message())
    assert mailbox.secure == [True, True]


def test_a_relay_with_another_certificate_gets_nothing(relay_tls: ssl.SSLContext) -> None:
    mailbox = Mailbox()
    with (
        relay(mailbox, tls_context=relay_tls) as port,
        pytest.raises(Unavailable, match="certificate") as failure,
    ):
        Mailer(settings(port, starttls=True)).send(message())
    assert failure.value.category == "network_error"
    assert mailbox.received == []


def test_a_relay_that_offers_no_starttls_gets_nothing() -> None:
    mailbox = Mailbox()
    with relay(mailbox) as port, pytest.raises(Unavailable, match="does not offer"):
        Mailer(settings(port, starttls=True)).send(message())
    assert mailbox.received == []


def test_the_mailer_signs_in_and_no_message_tells_the_password(
    relay_tls: ssl.SSLContext, trusting: ssl.SSLContext
) -> None:
    mailbox = Mailbox()
    options = {"tls_context": relay_tls, "authenticator": mailbox.authenticate, "auth_required": True}
    with relay(mailbox, **options) as port:
        Mailer(settings(port, starttls=True, username="t", password="sesame"), tls=trusting).send(message())
        with pytest.raises(Unavailable, match="535") as failure:
            Mailer(settings(port, starttls=True, username="t", password="wrong"), tls=trusting).send(message())
    assert mailbox.secure == [True]
    assert "wrong" not in str(failure.value)


def test_an_address_outside_ascii_needs_a_relay_that_takes_it() -> None:
    mailbox = Mailbox()
    with relay(mailbox, enable_SMTPUTF8=True) as port:
        Mailer(settings(port)).send(message("zoë@x.example"))
    assert mailbox.received[0].rcpt_tos == ["zoë@x.example"]
    with relay(mailbox, enable_SMTPUTF8=False) as port, pytest.raises(Refused) as refusal:
        Mailer(settings(port)).send(message("zoë@x.example"))
    assert refusal.value.category == "validation_failed"


def test_a_message_to_several_is_refused() -> None:
    several = message()
    several["Bcc"] = "all@x.example"
    two = EmailMessage()
    two["From"] = "t@acme.example"
    two["To"] = "a@x.example, b@x.example"
    for wrong in (several, two, EmailMessage()):
        with pytest.raises(Refused) as refusal:
            Mailer(settings(1)).send(wrong)
        assert refusal.value.category == "validation_failed"


def test_without_a_relay_nothing_is_sent() -> None:
    mailer = Mailer(MailSettings(host=None))
    assert not mailer.enabled
    with pytest.raises(Unavailable, match="No mail relay"):
        mailer.send(message())


def test_a_relay_that_is_not_there_is_a_network_error() -> None:
    with pytest.raises(Unavailable) as failure:
        Mailer(settings(free_port())).send(message())
    assert failure.value.category == "network_error"


# Relays that misbehave

Script = Callable[[socket.socket], None]


@contextmanager
def misbehaving(script: Script) -> Iterator[int]:
    """Plays `script` on one connection; its port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def play() -> None:
            connection, _ = listener.accept()
            with connection, suppress(OSError):
                connection.settimeout(5)
                script(connection)

        thread = threading.Thread(target=play)
        thread.start()
        port = listener.getsockname()[1]
        try:
            yield port
        finally:
            socket.create_connection(("127.0.0.1", port)).close()  # for the case that nobody came
            thread.join()


def conversation(*replies: bytes, drip: bytes) -> Script:
    """Say the replies, each but the first after a line of the client, then a byte at a time for longer than it waits."""

    def script(connection: socket.socket) -> None:
        for number, reply in enumerate(replies):
            if number:
                connection.recv(65536)
            connection.sendall(reply)
        if replies and not replies[-1].startswith(RECORD):
            connection.recv(65536)
        for _ in range(40):
            connection.sendall(drip)
            time.sleep(0.1)

    return script


RECORD = b"\x16\x03\x03\x3f\x00\x02\x00\x3e\xfc"
"""The start of a TLS record that takes 16,000 bytes more."""

HELLO = [b"220 hi\r\n", b"250-hi\r\n250 STARTTLS\r\n"]
SLOW = {
    "greeting": conversation(drip=b"2"),
    "ehlo": conversation(HELLO[0], drip=b"250-x\r\n"),
    "tls handshake": conversation(*HELLO, b"220 go\r\n", RECORD, drip=b"\x00"),
    "mail": conversation(*HELLO, drip=b"2"),
    "after the message": conversation(*HELLO, b"250 OK\r\n", b"250 OK\r\n", b"354 go\r\n", drip=b"2"),
}


def test_a_drip_anywhere_is_cut_at_the_deadline() -> None:
    """All at once, so that the test takes as long as one of them."""

    def cut(part: str) -> str:
        with misbehaving(SLOW[part]) as port:
            mailer = Mailer(settings(port, timeout=timedelta(seconds=1), starttls=part == "tls handshake"))
            started = time.monotonic()
            with pytest.raises(Unavailable) as failure:
                mailer.send(message())
            assert 0.9 < time.monotonic() - started < 10
        return failure.value.category

    with ThreadPoolExecutor(len(SLOW)) as pool:
        outcomes = {part: pool.submit(cut, part) for part in SLOW}
    assert {part: outcome.result() for part, outcome in outcomes.items()} == dict.fromkeys(SLOW, "timeout")


def test_an_endless_reply_is_cut() -> None:
    def script(connection: socket.socket) -> None:
        while True:
            connection.sendall(b"220-hi\r\n" * 500)

    started = time.monotonic()
    with misbehaving(script) as port, pytest.raises(Unavailable) as failure:
        Mailer(settings(port)).send(message())
    assert failure.value.category == "network_error"
    assert time.monotonic() - started < 10


def test_what_a_relay_said_before_tls_is_forgotten(relay_tls: ssl.SSLContext, trusting: ssl.SSLContext) -> None:
    """A reply slipped in behind the one to STARTTLS, in clear text, is not taken for one said inside TLS."""
    lines: list[bytes] = []

    def script(connection: socket.socket) -> None:
        connection.sendall(HELLO[0])
        connection.recv(65536)
        connection.sendall(HELLO[1])
        connection.recv(65536)
        connection.sendall(b"220 go\r\n250-slipped in\r\n250 SMTPUTF8\r\n")
        with relay_tls.wrap_socket(connection, server_side=True) as secure:
            lines.append(secure.recv(65536))
            secure.sendall(b"250 hi\r\n")
            lines.append(secure.recv(65536))

    with misbehaving(script) as port, pytest.raises((Unavailable, Refused)):
        Mailer(settings(port, starttls=True), tls=trusting).send(message("zoë@x.example"))
    assert b"SMTPUTF8" not in b"".join(lines).upper()


@pytest.mark.parametrize("reply", [b"", b"\xff\xfe\r\n", b"hello\r\n", b"2" * 20_000 + b"\r\n", b"554 go away\r\n"])
def test_nonsense_for_a_greeting_is_a_network_error(reply: bytes) -> None:
    with misbehaving(lambda connection: connection.sendall(reply)) as port, pytest.raises(Unavailable) as failure:
        Mailer(settings(port)).send(message())
    assert failure.value.category == "network_error"
