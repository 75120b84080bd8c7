"""Messages to the relay: smtplib over a wire of our own, so that one deadline covers a whole delivery.

smtplib's own limit is one a read (FAULTS.md, 26), and its STARTTLS is replaced for the same reason; ours always checks
the relay's certificate. A relay that stops offering STARTTLS gets no message, rather than one in the open.
"""

from __future__ import annotations

import smtplib
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from email.headerregistry import Address
from email.message import EmailMessage
from typing import Any

from engine.core.errors import Refused, Unavailable
from engine.core.settings import MailSettings
from engine.egress.deadline import Deadline
from engine.egress.names import addresses_of, system_addresses
from engine.egress.wire import Wire, trusted_authorities

REPLY_BUDGET = 256 * 1024
"""Bytes a relay may send in one delivery."""

GOODBYE = timedelta(milliseconds=500)
"""How long the relay is waited for at the end."""


class Mailer:
    """Sends to the relay that the settings name. Holds no connection: may be used from many threads."""

    def __init__(self, settings: MailSettings, *, tls: ssl.SSLContext | None = None) -> None:
        """`tls` replaces the trusted authorities of STARTTLS."""
        self._settings = settings
        self._tls = tls

    @property
    def enabled(self) -> bool:
        """Whether there is a relay at all."""
        return self._settings.host is not None

    def send(self, message: EmailMessage) -> None:
        """Hand `message`, which names one recipient, to the relay. Raises as `Session.send`."""
        with self.open() as session:
            session.send(message)

    @contextmanager
    def open(self) -> Iterator[Session]:
        """For several messages on one connection, made by the first of them."""
        session = Session(self._settings, self._tls)
        try:
            yield session
        finally:
            session.close()


class Session:
    """One connection at a time, made again after a failure. Belongs to one thread."""

    def __init__(self, settings: MailSettings, tls: ssl.SSLContext | None) -> None:
        self._settings = settings
        self._tls = tls
        self._relay: _Relay | None = None

    def send(self, message: EmailMessage) -> None:
        """Hand over one message, in at most the settings' timeout, connecting included.

        Raises Refused("validation_failed") if the relay refuses the recipient for good or the addresses cannot be
        sent, and Unavailable("timeout" | "network_error") for all else.
        """
        sender, recipient = _addresses(message)
        deadline = Deadline.after(self._settings.timeout.total_seconds())
        try:
            relay = self._connected(deadline)
        except (OSError, smtplib.SMTPException, ValueError) as error:
            raise self._failed(error, deadline) from None
        try:
            relay.under(deadline)
            relay.send_message(message, sender, [recipient])
        except smtplib.SMTPNotSupportedError:
            raise Refused("validation_failed", "The mail relay takes no addresses outside ASCII.") from None
        except smtplib.SMTPRecipientsRefused as error:
            code = error.recipients[recipient][0]
            if not 500 <= code <= 599:
                raise self._failed(smtplib.SMTPResponseException(code, ""), deadline) from None
            raise Refused("validation_failed", f"The mail relay refused the recipient ({code}).") from None
        except (OSError, smtplib.SMTPException) as error:
            raise self._failed(error, deadline) from None

    def close(self) -> None:
        """Take leave of the relay, briefly."""
        relay, self._relay = self._relay, None
        if relay is None:
            return
        with suppress(OSError, smtplib.SMTPException):
            relay.under(Deadline.after(GOODBYE.total_seconds()))
            relay.quit()
        relay.close()

    def _connected(self, deadline: Deadline) -> _Relay:
        if self._relay is not None:
            if self._relay.still_there(deadline):
                return self._relay
            self._relay.close()
        settings = self._settings
        if settings.host is None:
            raise Unavailable("network_error", "No mail relay is set (TENURE_SMTP_HOST).")
        relay = self._relay = _Relay(deadline)
        code, _ = relay.connect(settings.host, settings.port)
        if code != 220:
            raise smtplib.SMTPConnectError(code, "")
        relay.ehlo_or_helo_if_needed()
        if settings.starttls:
            upgrade: Any = _Upgrade(self._tls or trusted_authorities())
            relay.starttls(context=upgrade)
            relay.ehlo_or_helo_if_needed()
        if settings.username is not None:
            relay.login(settings.username, settings.password or "")
        return relay

    def _failed(self, error: Exception, deadline: Deadline) -> Unavailable:
        """What to raise for `error`, of which only the relay's code is told. The connection is given up."""
        relay, self._relay = self._relay, None
        if relay is not None:
            relay.close()
        if deadline.is_over:
            return Unavailable("timeout", "The mail relay did not answer in time.")
        if isinstance(error, smtplib.SMTPResponseException):
            return Unavailable("network_error", f"The mail relay answered {error.smtp_code}.")
        if isinstance(error, smtplib.SMTPNotSupportedError):
            return Unavailable("network_error", "The mail relay does not offer what the settings ask for.")
        if isinstance(error, ssl.SSLCertVerificationError):
            return Unavailable("network_error", "The mail relay showed a certificate that is not valid for it.")
        return Unavailable("network_error", "The exchange with the mail relay failed.")


class _Relay(smtplib.SMTP):
    """smtplib's side of the conversation, over a Wire."""

    def __init__(self, deadline: Deadline) -> None:
        name = socket.gethostname()
        # a name of its own: otherwise smtplib asks the name server who we are, outside any deadline
        super().__init__(local_hostname=name if "." in name else "[127.0.0.1]")
        self._deadline = deadline
        self._wire: Wire | None = None

    def under(self, deadline: Deadline) -> None:
        """Put the next exchange under `deadline`."""
        self._deadline = deadline
        if self._wire is not None:
            self._wire.until(deadline)
            self._wire.allow(REPLY_BUDGET)

    def still_there(self, deadline: Deadline) -> bool:
        """Whether the relay kept the connection since the last message."""
        self.under(deadline)
        try:
            return bool(self.noop()[0] == 250)
        except (OSError, smtplib.SMTPException):
            return False

    def _get_socket(self, host: str, port: int, _timeout: Any) -> Any:
        self._host = host
        self._wire = Wire.connect(addresses_of(host, system_addresses, self._deadline), port, self._deadline)
        self._wire.allow(REPLY_BUDGET)
        return self._wire


class _Upgrade:
    """Stands where smtplib expects an SSLContext, and starts TLS on the wire itself."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context

    def wrap_socket(self, sock: Wire, server_hostname: str) -> Wire:
        sock.start_tls(self._context, server_hostname)
        sock.allow(REPLY_BUDGET)
        return sock


def _addresses(message: EmailMessage) -> tuple[str, str]:
    """Sender and the one recipient, as parsed by the email package and not by splitting text."""
    senders: tuple[Address, ...] = getattr(message["From"], "addresses", ())
    recipients: tuple[Address, ...] = getattr(message["To"], "addresses", ())
    if len(senders) != 1 or len(recipients) != 1 or message["Cc"] or message["Bcc"]:
        raise Refused("validation_failed", "A message has one sender and one recipient.")
    sender, recipient = str(senders[0].addr_spec), str(recipients[0].addr_spec)
    if any(not address.isprintable() or " " in address or "@" not in address for address in (sender, recipient)):
        raise Refused("validation_failed", "A message is sent between plain addresses.")
    return sender, recipient
