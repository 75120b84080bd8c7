"""Whose tokens count, as the operator sets it: what cannot be is refused at the start."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from api.settings import ApiSettings

URL = "https://id.example.org/realms/acme"


@pytest.mark.parametrize(
    ("variables", "takes_local_tokens"),
    [
        ({}, True),
        ({"OIDC_ISSUER": ""}, True),
        ({"OIDC_ISSUER": URL}, False),
        ({"OIDC_ISSUER": URL, "LOCAL_ISSUER": "true"}, True),
        ({"OIDC_ISSUER": URL, "LOCAL_ISSUER": "false"}, False),
    ],
)
def test_the_local_issuer_counts_by_itself_only_on_a_machine_on_its_own(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], takes_local_tokens: bool
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(f"TENURE_API_{name}", value)
    assert ApiSettings().takes_local_tokens is takes_local_tokens


@pytest.mark.parametrize(
    "url",
    [
        URL,
        "https://id.example.org",
        "https://id.example.org/",
        "https://10.0.0.7:8443/x",
        "http://127.0.0.1:8080/realms/acme",
        "http://localhost:8080",
        "http://[::1]:8080",
    ],
)
def test_a_provider_is_kept_as_it_is_written(url: str) -> None:
    assert ApiSettings(oidc_issuer=url).oidc_issuer == url


@pytest.mark.parametrize(
    "url",
    [
        "http://id.example.org",
        "http://10.0.0.7",
        "http://localhost.example.org",
        "http://127.0.0.1.example.org",
        "http://0.0.0.0",
        "id.example.org",
        "urn:tenure:local-issuer",
        "ftp://id.example.org",
        "https://",
        "https://id.example.org?x=y",
        "https://id.example.org/#x",
        "https://who:sesame@id.example.org",
        "https://id.example.org:99999",
        "https://id.example.org/ x",
        "https://id.example.org\n",
    ],
)
def test_a_provider_is_https_or_on_this_machine(url: str) -> None:
    with pytest.raises(ValidationError) as refusal:
        ApiSettings(oidc_issuer=url)
    assert "sesame" not in str(refusal.value)


@pytest.mark.parametrize(
    "together",
    [
        {"local_issuer": False},
        {"admin_audience": "tenure", "account_audience": "tenure"},
        {"oidc_keys_max_age": timedelta(minutes=10), "oidc_keys_longest": timedelta(minutes=5)},
        {"oidc_cool_down": timedelta(0)},
        {"oidc_timeout": timedelta(minutes=1)},
        {"subject_claim": ""},
    ],
    ids=str,
)
def test_settings_that_cannot_be_are_refused(together: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        ApiSettings(**together)
