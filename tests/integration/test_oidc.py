"""An identity provider: what it says of itself and of its keys, over real sockets, and the API that takes its tokens."""

from __future__ import annotations

import gzip
import json
import os
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
import trustme

from api.jwks import ALGORITHMS
from api.oidc import Provider
from api.parts import Parts
from api.settings import ApiSettings
from db.session import Database
from engine.core.errors import Refused, Unavailable
from engine.egress.deadline import Deadline
from engine.egress.documents import LARGEST, fetch, source
from tests.calling import ISSUER, problem
from tests.endpoints import silent_endpoint
from tests.factories import KEYRING
from tests.forging import SigningKey
from tests.identity_provider import DESCRIPTION, KEYS, Answer, Clock, IdentityProvider, an_identity_provider, says
from tests.trusting import an_api_that_trusts

KEY = SigningKey.new("ES256")
ALL = {name: SigningKey.new(name) for names in ALGORITHMS.values() for name in names}


@pytest.fixture
def provider() -> Iterator[IdentityProvider]:
    with an_identity_provider() as provider:
        provider.keys = [KEY]
        yield provider


def published(provider: IdentityProvider, tls: ssl.SSLContext | None = None, within: float = 10) -> list[str]:
    """The ids of the keys that count."""
    return list(Provider(provider.issuer, tls).keys(Deadline.after(within)))


def away(provider: IdentityProvider, tls: ssl.SSLContext | None = None, within: float = 10) -> Unavailable:
    with pytest.raises(Unavailable) as failure:
        published(provider, tls, within)
    return failure.value


# What it says


@pytest.mark.parametrize("path", ["", "/realms/acme", "/realms/acme/"])
def test_a_provider_is_found_by_its_name(path: str) -> None:
    with an_identity_provider(path=path.removesuffix("/")) as provider:
        provider.issuer += path[len(path.removesuffix("/")) :]
        provider.keys = [KEY]
        provider.description = {"jwks_uri": provider.issuer.removesuffix("/") + KEYS}
        assert published(provider) == [KEY.id]
        assert provider.asked == [DESCRIPTION, KEYS]


DESCRIPTIONS: dict[str, Callable[[IdentityProvider], dict[str, Any]]] = {
    "another issuer": lambda it: {"issuer": "https://id.example.org"},
    "a slash more": lambda it: {"issuer": it.issuer + "/"},
    "a path more": lambda it: {"issuer": it.issuer + "/realms/acme"},
    "other letters": lambda it: {"issuer": it.issuer.upper()},
    "no issuer": lambda it: {"issuer": ...},
    "a null issuer": lambda it: {"issuer": None},
    "issuers": lambda it: {"issuer": [it.issuer]},
    "no place": lambda it: {"jwks_uri": ...},
    "a null place": lambda it: {"jwks_uri": None},
    "a place that is a number": lambda it: {"jwks_uri": 5},
    "a place without a scheme": lambda it: {"jwks_uri": KEYS},
    "a place with a fragment": lambda it: {"jwks_uri": it.issuer + KEYS + "#x"},
    "a place of another scheme": lambda it: {"jwks_uri": it.issuer.replace("http", "ftp") + KEYS},
    "a file": lambda it: {"jwks_uri": "file:///etc/passwd"},
    "a place on another machine without TLS": lambda it: {"jwks_uri": "http://id.example.org/keys"},
    "a place in the private network without TLS": lambda it: {"jwks_uri": "http://10.0.0.1/keys"},
    "a metadata service": lambda it: {"jwks_uri": "https://169.254.169.254/keys"},
    "a place that is not there": lambda it: {"jwks_uri": it.issuer + "/nowhere"},
}


@pytest.mark.parametrize("name", DESCRIPTIONS)
def test_a_description_of_something_else_counts_as_none(name: str, provider: IdentityProvider) -> None:
    provider.description = DESCRIPTIONS[name](provider)
    away(provider)
    assert KEYS not in provider.asked


def endless(asking: BaseHTTPRequestHandler) -> None:
    asking.send_response(200)
    asking.end_headers()
    while True:
        asking.wfile.write(b" " * 65536)


def cut_short(asking: BaseHTTPRequestHandler) -> None:
    asking.send_response(200)
    asking.send_header("Content-Length", "100")
    asking.end_headers()
    asking.wfile.write(b"{}")


def in_crumbs(asking: BaseHTTPRequestHandler) -> None:
    asking.protocol_version = "HTTP/1.1"
    asking.send_response(200)
    asking.send_header("Transfer-Encoding", "chunked")
    asking.end_headers()
    asking.wfile.write(b"%x\r\n%s\r\n" % (len(GOOD), GOOD) + b"1\r\n \r\n" * 5000 + b"0\r\n\r\n")


def headers_without_end(asking: BaseHTTPRequestHandler) -> None:
    asking.send_response(200)
    for number in range(5000):
        asking.send_header(f"X-{number}", "x" * 20)
    asking.end_headers()


def not_http(asking: BaseHTTPRequestHandler) -> None:
    asking.wfile.write(b"SSH-2.0-OpenSSH_9.2\r\n")


GOOD = json.dumps({"keys": [KEY.jwk()]}).encode()
BOMB = gzip.compress(GOOD[:-1] + b" " * 30_000_000 + b"}", 1)
NONSENSE: dict[str, Answer] = {
    "HTML": says(200, b"<!doctype html><title>Sign in</title>", Content_Type="text/html"),
    "nothing": says(200, b""),
    "no content": says(204),
    "a text": says(200, b'"keys"'),
    "a list": says(200, b"[]"),
    "null": says(200, b"null"),
    "not UTF-8": says(200, b"\xff\xfe{}"),
    "a byte order mark": says(200, b"\xef\xbb\xbf" + GOOD),
    "members twice": says(200, GOOD[:-1] + b',"keys":[]}'),
    "nested without end": says(200, b"[" * 100_000),
    "NaN": says(200, GOOD[:-1] + b',"a":NaN}'),
    "a body of megabytes": says(200, GOOD + b" " * LARGEST),
    "a body without end": endless,
    "a body of crumbs": in_crumbs,
    "a body cut short": cut_short,
    "headers without end": headers_without_end,
    "a long header": says(200, GOOD, X="x" * 60_000),
    "compressed": says(200, gzip.compress(GOOD), Content_Encoding="gzip"),
    "compressed, so it says": says(200, GOOD, Content_Encoding="gzip"),
    "compressed, unsaid": says(200, gzip.compress(GOOD)),
    "a bomb": says(200, BOMB, Content_Encoding="gzip"),
    "not found": says(404, GOOD),
    "failed": says(500, GOOD),
    "created": says(201, GOOD),
    "not HTTP": not_http,
    "moved": says(302, b"", Location="/elsewhere"),
    "moved for good": says(308, b"", Location="/elsewhere"),
}


@pytest.mark.parametrize("path", [DESCRIPTION, KEYS])
@pytest.mark.parametrize("name", NONSENSE)
def test_a_provider_that_answers_nonsense_counts_as_away(name: str, path: str, provider: IdentityProvider) -> None:
    provider.instead[path] = NONSENSE[name]
    assert away(provider).category == "network_error"
    assert provider.asked == [DESCRIPTION, KEYS][: 1 + (path == KEYS)], "nothing is followed"


@pytest.mark.parametrize("keys", [None, {}, "x", [], [5], [KEY.jwk(use="enc")], [KEY.jwk(), KEY.jwk()]])
def test_a_provider_without_a_key_that_counts_counts_as_away(keys: Any, provider: IdentityProvider) -> None:
    provider.instead[KEYS] = says(200, {"keys": keys})
    away(provider)


def test_strange_entries_take_no_good_key_along(provider: IdentityProvider) -> None:
    provider.further = [
        None,
        {},
        KEY.jwk(kid="x", use="enc"),
        KEY.jwk(kid="y", alg="HS256"),
        {"kty": "oct", "kid": "z"},
    ]
    assert published(provider) == [KEY.id]


@pytest.mark.parametrize("path", [DESCRIPTION, KEYS])
def test_one_deadline_holds_for_both_documents(path: str, provider: IdentityProvider) -> None:
    provider.instead[path] = provider.drips
    assert away(provider, within=0.3).category == "timeout"


# How it is reached


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def trusting(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


def certified(authority: trustme.CA, name: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(name).configure_cert(context)
    return context


def test_a_provider_is_known_by_its_certificate(authority: trustme.CA, trusting: ssl.SSLContext) -> None:
    with an_identity_provider(certified(authority, "127.0.0.1")) as provider:
        provider.keys = [KEY]
        assert published(provider, trusting) == [KEY.id]
        provider.asked.clear()
        assert "certificate" in away(provider).message, "an authority that nobody trusts"
    with an_identity_provider(certified(authority, "127.0.0.2")) as other:
        assert "certificate" in away(other, trusting).message, "another's certificate"
    assert provider.asked == other.asked == []


def test_an_authority_of_the_operators_is_trusted(authority: trustme.CA, tmp_path: Path) -> None:
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    ask = (
        "import sys; from api.oidc import Provider; from engine.egress.deadline import Deadline; "
        "print(*Provider(sys.argv[1]).keys(Deadline.after(10)))"
    )
    with an_identity_provider(certified(authority, "127.0.0.1")) as provider:
        provider.keys = [KEY]
        environment = {**os.environ, "SSL_CERT_FILE": str(tmp_path / "ca.pem")}
        command = [sys.executable, "-c", ask, provider.issuer]
        told = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert told.stdout.split() == [KEY.id], told.stderr


def test_keys_do_not_come_without_tls_where_the_description_came_with_it(
    authority: trustme.CA, trusting: ssl.SSLContext, provider: IdentityProvider
) -> None:
    with an_identity_provider(certified(authority, "127.0.0.1")) as safe:
        safe.description = {"jwks_uri": provider.issuer + KEYS}
        away(safe, trusting)
    assert provider.asked == []


def test_proxies_of_the_environment_are_not_used(provider: IdentityProvider, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert published(provider) == [KEY.id]


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("http://localhost/", "10.0.0.1"),
        ("http://localhost/", "93.184.216.34"),
        ("https://id.example.org/", "169.254.169.254"),
        ("https://id.example.org/", "::ffff:127.0.0.1"),
    ],
)
def test_a_name_that_leads_elsewhere_is_not_followed(url: str, address: str) -> None:
    with pytest.raises(Unavailable) as denial:
        fetch(source(url, plain=True), Deadline.after(5), resolve=lambda _host: ["127.0.0.1", address])
    assert denial.value.category == "egress_denied"
    with pytest.raises(Refused):
        source("http://localhost/", plain=False)


# The API


@pytest.mark.parametrize("algorithm", ALL)
def test_a_good_token_of_every_algorithm_is_taken(algorithm: str, module_database: Database) -> None:
    with an_identity_provider() as provider, an_api_that_trusts(module_database, provider) as api:
        provider.keys = [*ALL.values()]
        for audience, path in (("admin", "/users"), ("account", "/me/workflow-approvals")):
            token = provider.token(ALL[algorithm], api.realm_id, api.realm.admin, aud=audience)
            assert api.with_token(token).get(path).status_code == 200
        assert provider.fetches == 1
        assert api.get("/users").status_code == 200, "the local issuer is trusted beside it"


def test_the_provider_has_names_of_its_own(provider: IdentityProvider, module_database: Database) -> None:
    names = {"subject_claim": "tenure_id", "realm_claim": "https://example.org/realm", "admin_audience": "urn:tenure"}
    with an_api_that_trusts(module_database, provider, **names) as api:
        theirs = {"tenure_id": api.realm.admin, "https://example.org/realm": api.realm_id, "realm": ...}
        token = provider.token(KEY, api.realm_id, "auth0|7f3", aud=["urn:tenure", "urn:other"], **theirs)
        assert api.with_token(token).get("/users").status_code == 200
        usual = provider.token(KEY, api.realm_id, api.realm.admin)
        problem(api.with_token(usual).get("/users"), 401, "unauthenticated")
        assert api.get("/users").status_code == 200, "those are the provider's, not the local issuer's"


def test_with_a_provider_the_local_issuer_does_not_count_by_itself(
    provider: IdentityProvider, module_database: Database
) -> None:
    with an_api_that_trusts(module_database, provider, local_issuer=None) as api:
        problem(api.get("/users"), 401, "unauthenticated")
        token = provider.token(KEY, api.realm_id, api.realm.admin)
        assert api.with_token(token).get("/users").status_code == 200
        assert api.client.get("/.well-known/jwks.json").json() == {"keys": []}
    with an_api_that_trusts(module_database, provider) as api:
        assert api.client.get("/.well-known/jwks.json").json() == ISSUER.jwks()


def test_the_parts_are_there_while_the_provider_is_away_or_silent(
    provider: IdentityProvider, module_database: Database
) -> None:
    settings = ApiSettings(oidc_issuer=provider.issuer)
    parts = Parts.open(settings, module_database, KEYRING)
    assert parts.issuer is None
    assert provider.asked == [], "nothing is asked before a token comes"
    with silent_endpoint() as url:
        silent = IdentityProvider(url.removesuffix("/"))
        with an_api_that_trusts(module_database, silent, oidc_timeout=timedelta(milliseconds=200)) as api:
            assert api.get("/users").status_code == 200
            answer = api.with_token(silent.token(KEY, api.realm_id, api.realm.admin)).get("/users")
            problem(answer, 503, "unavailable")
            assert answer.headers["retry-after"] == "5"


def test_a_provider_that_is_away_is_told_as_that_and_nothing_else_is(
    provider: IdentityProvider, module_database: Database
) -> None:
    clock = Clock()
    with an_api_that_trusts(module_database, provider, clock) as api:
        good = provider.token(KEY, api.realm_id, api.realm.admin)
        strange = provider.token(SigningKey.new("ES256"), api.realm_id, api.realm.admin)
        assert api.with_token(good).get("/users").status_code == 200
        provider.instead[DESCRIPTION] = says(200, b"<html>")
        clock.advance(3599)
        assert api.with_token(good).get("/users").status_code == 200
        clock.advance(1)
        answer = api.with_token(good).get("/users")
        problem(answer, 503, "unavailable")
        assert "database" not in answer.text
        problem(api.with_token(strange).get("/users"), 503, "unavailable")
        elsewhere = provider.token(KEY, api.realm_id, api.realm.admin, iss="https://id.example.org")
        for wrong in (good[:-9], good + "=", "x.y.z", elsewhere):
            problem(api.with_token(wrong).get("/users"), 401, "unauthenticated")
        assert api.get("/users").status_code == 200, "the local issuer needs nobody"
        provider.instead.clear()
        clock.advance(30)
        assert api.with_token(good).get("/users").status_code == 200


def test_a_slow_provider_holds_up_no_request_whose_key_is_known(
    provider: IdentityProvider, module_database: Database
) -> None:
    with an_api_that_trusts(module_database, provider, oidc_timeout=timedelta(seconds=10)) as api:
        known = api.with_token(provider.token(KEY, api.realm_id, api.realm.admin))
        strange = api.with_token(provider.token(SigningKey.new("ES256"), api.realm_id, api.realm.admin))
        assert known.get("/users").status_code == 200
        provider.instead[KEYS] = provider.drips
        answers: list[int] = []
        strangers = [
            threading.Thread(target=lambda: answers.append(strange.get("/users").status_code)) for _ in range(60)
        ]
        for stranger in strangers:
            stranger.start()
        for _ in range(20):
            assert known.get("/users").status_code == 200
        waiting = sum(stranger.is_alive() for stranger in strangers)
        assert provider.in_hand == 1, "all that while the provider was still at it"
        assert waiting >= 1
        provider.closing.set()
        for stranger in strangers:
            stranger.join()
        assert set(answers) <= {401, 503}
        assert provider.fetches == 2
