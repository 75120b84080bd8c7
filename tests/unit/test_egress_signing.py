"""Signatures that the stock verifier of Standard Webhooks takes."""

from __future__ import annotations

import base64
import os
from datetime import UTC, datetime, timedelta, timezone

import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from engine.core.errors import Refused
from engine.egress.signing import Secret, new_secret, signed_headers

BODY = '{"name":"Zoë","n":1}'.encode()


def now() -> datetime:
    return datetime.now(UTC)


@pytest.mark.parametrize("length", [24, 25, 26, 32, 48, 64])
@pytest.mark.parametrize("prefix", ["", "whsec_"])
@pytest.mark.parametrize("padded", [True, False])
def test_the_stock_verifier_takes_a_signature_for_every_way_to_write_a_secret(
    length: int, prefix: str, padded: bool
) -> None:
    encoded = base64.b64encode(os.urandom(length)).decode()
    text = prefix + (encoded if padded else encoded.rstrip("="))
    headers = signed_headers("wsa_1", BODY, [Secret.parse(text)], now())
    assert Webhook(text).verify(BODY, headers) == {"name": "Zoë", "n": 1}


def test_while_a_rotated_secret_overlaps_both_verify_and_a_third_does_not() -> None:
    old, new, other = new_secret(), new_secret(), new_secret()
    headers = signed_headers("wsa_1", BODY, [Secret.parse(new), Secret.parse(old)], now())
    assert headers["Webhook-Signature"].count("v1,") == 2
    Webhook(old).verify(BODY, headers)
    Webhook(new).verify(BODY, headers)
    with pytest.raises(WebhookVerificationError):
        Webhook(other).verify(BODY, headers)


def test_a_changed_body_id_or_timestamp_does_not_verify() -> None:
    secret = new_secret()
    headers = signed_headers("wsa_1", BODY, [Secret.parse(secret)], now())
    for changed in ({"Webhook-Id": "wsa_2"}, {"Webhook-Timestamp": str(int(headers["Webhook-Timestamp"]) + 1)}):
        with pytest.raises(WebhookVerificationError):
            Webhook(secret).verify(BODY, {**headers, **changed})
    with pytest.raises(WebhookVerificationError):
        Webhook(secret).verify(BODY + b" ", headers)


def test_the_timestamp_is_that_of_the_try_so_a_retry_after_six_hours_verifies() -> None:
    secret = new_secret()
    late = now() - timedelta(hours=6)
    with pytest.raises(WebhookVerificationError, match="too old"):
        Webhook(secret).verify(BODY, signed_headers("wsa_1", BODY, [Secret.parse(secret)], late))
    Webhook(secret).verify(BODY, signed_headers("wsa_1", BODY, [Secret.parse(secret)], now()))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "whsec_",
        base64.b64encode(b"x" * 23).decode(),
        base64.b64encode(b"x" * 65).decode(),
        "whsec_whsec_" + base64.b64encode(b"x" * 32).decode(),
        base64.urlsafe_b64encode(b"\xff" * 32).decode(),
        "ä" * 40,
        base64.b64encode(b"x" * 32).decode() + "\n",
        "A" * 41,
    ],
)
def test_a_secret_that_receivers_would_read_otherwise_is_refused(text: str) -> None:
    with pytest.raises(Refused) as refusal:
        Secret.parse(text)
    assert refusal.value.category == "validation_failed"
    assert not text or text not in str(refusal.value)


@pytest.mark.parametrize("at", [datetime(2026, 10, 10), datetime(2026, 10, 10, tzinfo=timezone(timedelta(hours=2)))])  # noqa: DTZ001
def test_a_moment_that_is_not_in_utc_is_a_bug(at: datetime) -> None:
    with pytest.raises(ValueError, match="UTC"):
        signed_headers("wsa_1", BODY, [Secret.parse(new_secret())], at)


@pytest.mark.parametrize("message_id", ["", "a.b", "a\r\nX: y", "a b"])
def test_a_message_id_that_does_not_fit_a_header_is_a_bug(message_id: str) -> None:
    with pytest.raises(ValueError, match="message id"):
        signed_headers(message_id, BODY, [Secret.parse(new_secret())], now())


def test_nothing_is_sent_unsigned() -> None:
    with pytest.raises(ValueError, match="at least one"):
        signed_headers("wsa_1", BODY, [], now())


def test_new_secrets_differ_and_are_not_shown() -> None:
    first, second = new_secret(), new_secret()
    assert first != second
    assert len(base64.b64decode(first.removeprefix("whsec_"))) == 32
    assert repr(Secret.parse(first)) == "Secret()"
