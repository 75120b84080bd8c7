"""A real SMTP server on this machine, which takes mail or is away."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from email.message import EmailMessage
from email.parser import BytesParser
from email.policy import default

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, Envelope, Session

from engine.core.settings import MailSettings


@dataclass
class Relay:
    """The server, and what it took."""

    port: int
    refusal: str | None = None
    took: list[EmailMessage] = field(default_factory=list)

    @classmethod
    def away(cls) -> Relay:
        """One that is not there yet."""
        with socket.create_server(("127.0.0.1", 0)) as listener:
            return cls(listener.getsockname()[1])

    @property
    def settings(self) -> MailSettings:
        """How mail gets there."""
        return MailSettings(
            host="127.0.0.1", port=self.port, sender="Tenure <tenure@x.example>", timeout=timedelta(seconds=5)
        )

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        if self.refusal is not None:
            return self.refusal
        assert isinstance(envelope.content, bytes)
        message = BytesParser(policy=default).parsebytes(envelope.content)
        assert [message["To"]] == envelope.rcpt_tos
        self.took.append(message)
        return "250 OK"

    async def handle_RCPT(
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        if address.startswith("nobody"):
            return "550 no such mailbox"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    @contextmanager
    def open(self) -> Iterator[None]:
        """It is there until the block ends."""
        controller = Controller(self, hostname="127.0.0.1", port=self.port)
        controller.start()
        try:
            yield
        finally:
            controller.stop()
