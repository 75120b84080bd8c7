"""A notice as a message to one person, built from parts that cannot become headers of their own."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from email.errors import MessageError
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime

from engine.core.errors import Refused
from engine.egress.notice import Notice

_ADDRESS = re.compile(r"[^\s@<>()\[\],;:\\\"]+@[^\s@<>()\[\],;:\\\"]+")
"""One plain address. Signs with a meaning of their own in a header are left out, and quoted mailboxes with them."""


def compose(notice: Notice, *, message_id: str, sender: str, recipient: str, at: datetime) -> EmailMessage:
    """The message to one recipient, under the same `message_id` each time it is tried.

    `sender` may carry a display name; `recipient` is an address alone. Raises Refused("validation_failed").
    """
    if not _ADDRESS.fullmatch(recipient) or not recipient.isprintable():
        raise _refused()
    mailbox, _, domain = recipient.partition("@")
    message = EmailMessage(policy=SMTP)
    try:
        message["From"] = sender
        (sending,) = message["From"].addresses
        message["To"] = Address(username=mailbox, domain=domain)
        message["Subject"] = notice.subject
        message["Date"] = format_datetime(at.astimezone(UTC))
        message["Message-ID"] = f"<{message_id}@{sending.domain}>"
        message["Auto-Submitted"] = "auto-generated"
        message.set_content(notice.body)
    except (ValueError, MessageError, IndexError):
        raise _refused() from None
    return message


def _refused() -> Refused:
    return Refused("validation_failed", "A message cannot be written to or from such an address.")
