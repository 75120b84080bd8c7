"""Tokens: what counts, and the many that do not."""

from __future__ import annotations

import base64
import json
import pickle
import re
import stat
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from api.compact import Compact
from api.issuer import KEY_FILE, LocalIssuer
from api.settings import ApiSettings
from api.tokens import MAX_TOKEN, Audience, TokenRefused, TrustedIssuer, Verifier
from cli.token import issue
from engine.core.errors import Refused
from tests.definitions import id_of

KEY = Ed25519PrivateKey.generate()
ISSUER = LocalIssuer(KEY)
VERIFIER = Verifier.of(ApiSettings(), TrustedIssuer(ISSUER.issuer, ISSUER))
REALM, USER, MACHINE = id_of("rlm"), id_of("usr"), id_of("spn")

Json = dict[str, Any]


def now() -> int:
    return int(time.time())


def claims(**changes: Any) -> Json:
    """The claims of a good token, changed; one set to `...` is left out."""
    good = {
        "iss": ISSUER.issuer,
        "aud": "admin",
        "sub": USER,
        "realm": REALM,
        "amr": ["pwd", "mfa"],
        "iat": now() - 10,
        "exp": now() + 600,
    }
    return {name: value for name, value in {**good, **changes}.items() if value is not ...}


def segment(value: bytes | Json) -> bytes:
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(raw).rstrip(b"=")


def signed(payload: bytes | Json, header: bytes | Json | None = None, key: Any = KEY) -> str:
    """Any header over any payload, with a valid signature of the issuer's key."""
    head = {"alg": "EdDSA", "typ": "JWT", "kid": ISSUER.key_id} if header is None else header
    content = segment(head) + b"." + segment(payload)
    return (content + b"." + segment(key.sign(content))).decode()


def header(**changes: Any) -> Json:
    good = {"alg": "EdDSA", "typ": "JWT", "kid": ISSUER.key_id}
    return {name: value for name, value in {**good, **changes}.items() if value is not ...}


def test_a_token_of_the_issuer_says_who_it_is() -> None:
    token = ISSUER.issue(REALM, USER, "admin", timedelta(minutes=5))
    told = VERIFIER.verify(token, "admin")
    assert (told.realm_id, told.subject_id, told.audience) == (REALM, USER, "admin")
    assert "mfa" in told.methods
    assert "mfa" not in VERIFIER.verify(ISSUER.issue(REALM, USER, "account", mfa=False), "account").methods


@pytest.mark.parametrize(
    "changes",
    [{}, {"aud": ["admin"]}, {"aud": ["other", "admin"]}, {"nbf": 1}, {"amr": ...}, {"extra": {"a": [1]}}],
    ids=str,
)
def test_what_a_good_issuer_may_do_is_taken(changes: Json) -> None:
    assert VERIFIER.verify(signed(claims(**changes)), "admin").subject_id == USER
    assert VERIFIER.verify(signed(claims(**changes), header(typ=...)), "admin").subject_id == USER
    assert VERIFIER.verify(signed(claims(**changes), header(typ="at+jwt")), "admin").subject_id == USER


def wrong_claims(now: int) -> dict[str, Json]:
    return {
        "another issuer": {"iss": "urn:tenure:elsewhere"},
        "no issuer": {"iss": ...},
        "issuers": {"iss": [ISSUER.issuer]},
        "another audience": {"aud": "account"},
        "no audience": {"aud": ...},
        "no audiences": {"aud": []},
        "an audience of any kind": {"aud": {"admin": True}},
        "a prefix of the audience": {"aud": "administrator"},
        "audiences that are no texts": {"aud": ["admin", 5]},
        "both audiences": {"aud": ["admin", "account"]},
        "a blank subject": {"sub": " "},
        "a service principal's subject with a newline": {"sub": f"{MACHINE}\n"},
        "no subject": {"sub": ...},
        "an empty subject": {"sub": ""},
        "a null subject": {"sub": None},
        "a subject of another kind": {"sub": id_of("org")},
        "a subject with a newline": {"sub": f"{USER}\n"},
        "a subject that is a number": {"sub": 5},
        "subjects": {"sub": [USER]},
        "no realm": {"realm": ...},
        "a realm of another kind": {"realm": id_of("org")},
        "realms": {"realm": [REALM]},
        "expired": {"exp": now - 1},
        "expired at this moment": {"iat": now - 600, "exp": now},
        "never expiring": {"exp": ...},
        "a null expiry": {"exp": None},
        "an expiry as text": {"exp": str(now + 600)},
        "an expiry with decimals": {"exp": now + 600.5},
        "an expiry that is true": {"exp": True},
        "an expiry in a thousand years": {"exp": now + 10**10},
        "an expiry of 10^30": {"exp": 10**30},
        "a negative expiry": {"exp": -1},
        "no time of issue": {"iat": ...},
        "issued tomorrow": {"iat": now + 86_400, "exp": now + 90_000},
        "issued as text": {"iat": str(now)},
        "issued long ago": {"iat": now - 100_000},
        "issued before all time": {"iat": -(10**15)},
        "not valid yet": {"nbf": now + 300},
        "not before a text": {"nbf": str(now - 5)},
        "methods as a text": {"amr": "mfa"},
        "methods as an object": {"amr": {"mfa": True}},
        "methods of any kind": {"amr": ["mfa", 5]},
        "a jti that is a number": {"jti": 5},
    }


@pytest.mark.parametrize("name", wrong_claims(0))
def test_a_well_signed_token_with_wrong_claims_is_refused(name: str) -> None:
    with pytest.raises(TokenRefused):
        VERIFIER.verify(signed(claims(**wrong_claims(now())[name])), "admin")


PUBLIC_PEM = KEY.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
STRANGER = Ed25519PrivateKey.generate()


def _hmac_with_the_public_key() -> str:
    """The oldest trick: the public key taken for a shared secret. The library would not sign so; anybody else does."""
    import hashlib
    import hmac

    content = segment(header(alg="HS256")) + b"." + segment(claims())
    return (content + b"." + segment(hmac.digest(PUBLIC_PEM, content, hashlib.sha256))).decode()


def _changed() -> str:
    head, _, mark = signed(claims()).split(".")
    return f"{head}.{segment(claims(sub=id_of('usr', '1'))).decode()}.{mark}"


def _respelt(index: int) -> str:
    """With stray bits at the end of a segment: a lenient reader finds the same bytes in it. Signed as it is sent."""
    head, body = (json.dumps(part).encode() for part in (header(), claims()))
    head, body = (
        part + b" " * ((1 - len(part)) % 3) for part in (head, body)
    )  # a byte more than threes: four bits to spare
    parts = [segment(head), segment(body)]
    if index < 2:
        parts[index] = _stray(parts[index])
    parts.append(segment(KEY.sign(b".".join(parts))))
    if index == 2:
        parts[2] = _stray(parts[2])
    token = b".".join(parts).decode()
    assert base64.urlsafe_b64decode(parts[0] + b"==") == head
    return token


def _stray(part: bytes) -> bytes:
    alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    return part[:-1] + alphabet[alphabet.index(part[-1]) + 1 :][:1]


WRONG_TOKENS: dict[str, Callable[[], str]] = {
    "nothing": lambda: "",
    "a word": lambda: "token",
    "dots": lambda: "..",
    "two parts": lambda: ".".join(signed(claims()).split(".")[:2]),
    "four parts": lambda: signed(claims()) + ".x",
    "no signature": lambda: signed(claims()).rpartition(".")[0] + ".",
    "half a signature": lambda: signed(claims())[:-20],
    "a padded signature": lambda: signed(claims()) + "==",
    "a signature with a stray sign": lambda: signed(claims()) + "!",
    "changed claims": _changed,
    "a key of a stranger": lambda: signed(claims(), key=STRANGER),
    "a key of a stranger in the header": lambda: signed(
        claims(), header(jwk=LocalIssuer(STRANGER).jwks()["keys"][0]), STRANGER
    ),
    "a key to be fetched": lambda: signed(claims(), header(jku="https://example.org/jwks"), STRANGER),
    "the issuer's own key in the header": lambda: signed(claims(), header(jwk=ISSUER.jwks()["keys"][0])),
    "a certificate": lambda: signed(claims(), header(x5c=["MIIB"])),
    "a certificate to be fetched": lambda: signed(claims(), header(x5u="https://example.org/x5u")),
    "a token within": lambda: signed(claims(), header(cty="JWT")),
    "compressed": lambda: signed(claims(), header(zip="DEF")),
    "a null type": lambda: signed(claims(), header(typ=None)),
    "no critical headers": lambda: signed(claims(), header(crit=[])),
    "an unknown key id": lambda: signed(claims(), header(kid="x")),
    "no key id": lambda: signed(claims(), header(kid=...)),
    "a null key id": lambda: signed(claims(), header(kid=None)),
    "key ids": lambda: signed(claims(), header(kid=[ISSUER.key_id])),
    "a long key id": lambda: signed(claims(), header(kid="x" * 300)),
    "alg none": lambda: f"{segment(header(alg='none')).decode()}.{segment(claims()).decode()}.",
    "alg None with a signature": lambda: signed(claims(), header(alg="None")),
    "no alg": lambda: signed(claims(), header(alg=...)),
    "algs": lambda: signed(claims(), header(alg=["EdDSA"])),
    "HS256 with the public key": _hmac_with_the_public_key,
    "HS256 with the empty key": lambda: jwt.encode(claims(), "x" * 32, "HS256", {"kid": ISSUER.key_id}),
    "ES256": lambda: jwt.encode(claims(), ec.generate_private_key(ec.SECP256R1()), "ES256", {"kid": ISSUER.key_id}),
    "RS256": lambda: jwt.encode(claims(), rsa.generate_private_key(65537, 2048), "RS256", {"kid": ISSUER.key_id}),
    "another type": lambda: signed(claims(), header(typ="logout+jwt")),
    "a type that is a list": lambda: signed(claims(), header(typ=["JWT"])),
    "critical headers": lambda: signed(claims(), header(crit=["exp"])),
    "detached": lambda: signed(claims(), header(b64=False, crit=["b64"])),
    "b64": lambda: signed(claims(), header(b64=True)),
    "a header that is a list": lambda: signed(claims(), b"[]"),
    "a header that is not JSON": lambda: signed(claims(), b"{"),
    "a header with a member twice": lambda: signed(claims(), json.dumps(header())[:-1].encode() + b',"alg":"EdDSA"}'),
    "claims twice": lambda: signed(json.dumps(claims())[:-1].encode() + f',"sub":"{USER}"}}'.encode()),
    "claims that are a list": lambda: signed(b"[]"),
    "claims that are not JSON": lambda: signed(b"sub"),
    "claims with NaN": lambda: signed(json.dumps(claims())[:-1].encode() + b',"a":NaN}'),
    "claims with half a surrogate": lambda: signed(json.dumps(claims())[:-1].encode() + b',"a":"\\ud800"}'),
    "claims that are not UTF-8": lambda: signed(b"\xff\xfe"),
    "nested without end": lambda: signed(b"[" * 3000 + b"]" * 3000),
    "too long": lambda: signed(claims(extra="x" * (MAX_TOKEN * 3 // 4))),
    "beyond ASCII": lambda: signed(claims()) + "é",
    "with a space": lambda: signed(claims()).replace(".", ". ", 1),
    "with a newline": lambda: signed(claims()) + "\n",
    "with a newline before": lambda: "\n" + signed(claims()),
    "a header spelt otherwise": lambda: _respelt(0),
    "claims spelt otherwise": lambda: _respelt(1),
    "a signature spelt otherwise": lambda: _respelt(2),
}


@pytest.mark.parametrize("name", WRONG_TOKENS)
def test_what_is_no_token_of_the_issuer_is_refused(name: str) -> None:
    with pytest.raises(TokenRefused):
        VERIFIER.verify(WRONG_TOKENS[name](), "admin")


@pytest.mark.parametrize("index", [0, 1, 2])
def test_a_part_of_a_token_has_one_spelling(index: int) -> None:
    """The library, too, takes no other. Whether it always will is not for us to say."""
    with pytest.raises(TokenRefused, match="spelling"):
        Compact.read(_respelt(index))


def test_the_audience_asked_for_is_the_one_that_counts() -> None:
    audiences: list[tuple[Audience, Audience]] = [("admin", "account"), ("account", "admin")]
    for of, wanted in audiences:
        with pytest.raises(TokenRefused):
            VERIFIER.verify(ISSUER.issue(REALM, USER, of), wanted)


def test_a_service_principal_has_a_token_of_its_own_that_tells_of_no_sign_in() -> None:
    token = ISSUER.issue(REALM, MACHINE)
    told = VERIFIER.verify(token, "admin")
    assert told.is_machine
    assert (told.subject_id, told.methods) == (MACHINE, frozenset())
    assert "amr" not in jwt.decode(token, options={"verify_signature": False})
    assert not VERIFIER.verify(ISSUER.issue(REALM, USER), "admin").is_machine
    with pytest.raises(TokenRefused):
        VERIFIER.verify(ISSUER.issue(REALM, MACHINE, "account"), "account")


def test_the_issuer_of_a_token_decides_whose_keys_are_asked() -> None:
    other = LocalIssuer(STRANGER, "https://id.example.org")
    both = Verifier.of(ApiSettings(), *(TrustedIssuer(issuer.issuer, issuer) for issuer in (ISSUER, other)))
    for issuer in (ISSUER, other):
        assert both.verify(issuer.issue(REALM, USER), "admin").subject_id == USER
    theirs = {"alg": "EdDSA", "typ": "JWT", "kid": other.key_id}
    for name in (ISSUER.issuer, "https://id.example.org/", "HTTPS://ID.EXAMPLE.ORG"):
        with pytest.raises(TokenRefused):
            both.verify(signed(claims(iss=name), theirs, STRANGER), "admin")


def test_a_provider_may_have_names_of_its_own() -> None:
    named = TrustedIssuer(ISSUER.issuer, ISSUER, "tenure_id", "https://example.org/realm", "urn:api", "urn:self")
    verifier = Verifier.of(ApiSettings(), named)
    theirs = {"tenure_id": USER, "https://example.org/realm": REALM, "realm": ..., "sub": "auth0|7", "aud": "urn:api"}
    assert verifier.verify(signed(claims(**theirs)), "admin").subject_id == USER
    assert verifier.verify(signed(claims(**{**theirs, "aud": ["urn:self", "x"]})), "account").realm_id == REALM
    for change in (
        {"sub": ""},
        {"sub": ...},
        {"sub": 7},
        {"tenure_id": ...},
        {"aud": "admin"},
        {"aud": ["urn:api", "urn:self"]},
    ):
        with pytest.raises(TokenRefused):
            verifier.verify(signed(claims(**{**theirs, **change})), "admin")


def test_leeway_and_the_longest_lifetime_are_the_operators() -> None:
    settings = ApiSettings(token_leeway=timedelta(seconds=30), token_lifetime=timedelta(minutes=5))
    patient = Verifier.of(settings, TrustedIssuer(ISSUER.issuer, ISSUER))
    assert patient.verify(signed(claims(iat=now() - 60, exp=now() - 5)), "admin").subject_id == USER
    with pytest.raises(TokenRefused):
        patient.verify(signed(claims(iat=now() - 10, exp=now() + 600)), "admin")


def test_the_key_is_made_once_private_and_whole(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    issuer = LocalIssuer.load(folder)
    path = folder / KEY_FILE
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert LocalIssuer.load(folder).key_id == issuer.key_id
    assert [entry.name for entry in folder.iterdir()] == [KEY_FILE]
    path.chmod(0o640)
    with pytest.raises(Refused, match="0600"):
        LocalIssuer.load(folder)
    path.chmod(0o600)
    path.write_bytes(b"not a key")
    with pytest.raises(Refused):
        LocalIssuer.load(folder)
    other = ec.generate_private_key(ec.SECP256R1())
    path.write_bytes(
        other.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    with pytest.raises(Refused, match="Ed25519"):
        LocalIssuer.load(folder)


def test_the_command_signs_with_the_key_in_the_folder(tmp_path: Path) -> None:
    token = issue(tmp_path, REALM, USER, "account", timedelta(minutes=1), mfa=False)
    own = TrustedIssuer(ISSUER.issuer, LocalIssuer.load(tmp_path))
    told = Verifier.of(ApiSettings(), own).verify(token, "account")
    assert told.subject_id == USER
    with pytest.raises(TokenRefused):
        VERIFIER.verify(token, "account")


@pytest.mark.parametrize(
    ("realm_id", "subject_id", "audience"),
    [
        (USER, REALM, "admin"),
        (REALM, REALM, "admin"),
        (REALM, "ada@example.org", "admin"),
        (REALM, id_of("org"), "admin"),
        (REALM[:-1], USER, "admin"),
        (REALM, USER.upper(), "admin"),
        (REALM, MACHINE, "account"),
    ],
)
def test_the_command_signs_nothing_that_could_not_count(
    tmp_path: Path, realm_id: str, subject_id: str, audience: Audience
) -> None:
    with pytest.raises(Refused) as refusal:
        issue(tmp_path, realm_id, subject_id, audience)
    assert refusal.value.category == "validation_failed"
    assert re.fullmatch(
        r"[^.]+(\(rlm_\.\.\.\)[^.]+\(usr_\.\.\.\)[^.]+\(spn_\.\.\.\)[^.]+)?\.", refusal.value.message
    ), "one sentence"
    assert not (tmp_path / KEY_FILE).exists()
    assert issue(tmp_path, REALM, MACHINE).count(".") == 2


def test_the_published_key_verifies_and_the_private_one_never_leaves() -> None:
    (published,) = ISSUER.jwks()["keys"]
    assert "d" not in published
    token = ISSUER.issue(REALM, USER)
    assert jwt.decode(token, jwt.PyJWK(published).key, ["EdDSA"], audience="admin")["sub"] == USER
    with pytest.raises(TypeError):
        pickle.dumps(ISSUER)
    assert "Ed25519PrivateKey" not in repr(ISSUER)
