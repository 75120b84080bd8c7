"""Standard Webhooks signatures. The stock library signs; what it does not check about its inputs is checked here."""

from __future__ import annotations

import base64
import binascii
import re
import secrets as randomness
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from standardwebhooks import Webhook

from engine.core.errors import Refused

PREFIX = "whsec_"
SHORTEST, LONGEST = 24, 64
"""Bytes of a secret, decoded: the bounds of Standard Webhooks."""

_NEW = 32
"""Bytes of a secret of our making."""

_MESSAGE_ID = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class Secret:
    """The key of a signature. Never shown."""

    key: bytes = field(repr=False)

    @classmethod
    def parse(cls, text: str) -> Secret:
        """Read `whsec_<base64>` or the base64 alone, padded or not. Raises Refused("validation_failed").

        The standard alphabet only: the stock libraries skip `-` and `_` without a word, and so get another key.
        """
        encoded = text.removeprefix(PREFIX).rstrip("=")
        try:
            key = base64.b64decode(encoded + "=" * (-len(encoded) % 4), validate=True)
        except (binascii.Error, ValueError):
            raise Refused(
                "validation_failed", "A webhook secret is base64, with or without whsec_ before it."
            ) from None
        if not SHORTEST <= len(key) <= LONGEST:
            raise Refused("validation_failed", f"A webhook secret has {SHORTEST} to {LONGEST} bytes.")
        return cls(key)


def new_secret() -> str:
    """A fresh secret as its owner sees it, once: `whsec_` and 32 random bytes in base64."""
    return PREFIX + base64.b64encode(randomness.token_bytes(_NEW)).decode("ascii")


def signed_headers(message_id: str, body: bytes, secrets: Sequence[Secret], at: datetime) -> dict[str, str]:
    """Webhook-Id, Webhook-Timestamp and Webhook-Signature: one signature a secret, so two while a rotated one overlaps.

    `at` is in aware UTC (the library replaces its zone without converting) and cut to the second.
    """
    if at.utcoffset() != timedelta(0):
        raise ValueError("a message is signed at a moment in aware UTC")
    if not secrets:
        raise ValueError("a message is signed with at least one secret")
    if not _MESSAGE_ID.fullmatch(message_id):
        raise ValueError("a message id holds letters, digits, _ and - only")
    text = body.decode("utf-8")
    signatures = [Webhook(secret.key).sign(message_id, at, text) for secret in secrets]
    return {
        "Webhook-Id": message_id,
        "Webhook-Timestamp": str(int(at.timestamp())),
        "Webhook-Signature": " ".join(signatures),
    }
