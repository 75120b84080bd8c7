"""Tokens that must not count, sent to the real API on a route that the good one opens: each is a 401 with one and the same body.

Every one is made for three signers: the local issuer (EdDSA), and a provider that signs with RSA and with an elliptic curve.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.hashes import SHA256

from api.tokens import MAX_TOKEN
from db.session import Database
from engine.core import ids
from engine.core.ids import Prefix
from tests.calling import ISSUER, LOCAL_KEY, Api, problem
from tests.definitions import Json
from tests.factories import TestRealm, a_realm
from tests.forging import SigningKey, rsa_key, segment, without_gaps, written
from tests.identity_provider import Clock, IdentityProvider, an_identity_provider
from tests.trusting import an_api_that_trusts

LOCAL = SigningKey("EdDSA", LOCAL_KEY, ISSUER.key_id)
RSA, EC = SigningKey.new("RS256"), SigningKey.new("ES256")
WITHDRAWN = {"rsa": SigningKey("RS256", rsa_key(2048, "withdrawn")), "ec": SigningKey.new("ES256")}
STRANGERS = {
    "local": SigningKey("EdDSA", Ed25519PrivateKey.generate()),
    "rsa": SigningKey("RS256", rsa_key(2048, "stranger")),
    "ec": SigningKey.new("ES256"),
}
FOR_ENCRYPTION, PUBLISHED_WHOLE = SigningKey.new("ES256"), SigningKey.new("ES256")

ADMIN_ROUTE, ACCOUNT_ROUTE = "/users", "/me/workflow-approvals"


@dataclass(frozen=True)
class Signer:
    """Who signs what a good token of one issuer says, and what may be changed about that."""

    name: str
    issuer: str
    key: SigningKey
    realm: TestRealm
    provider: IdentityProvider

    def claims(self, **changes: Any) -> Json:
        now = int(time.time())
        good = {
            "iss": self.issuer,
            "aud": "admin",
            "sub": self.realm.admin,
            "realm": self.realm.id,
            "amr": ["pwd", "mfa"],
            "iat": now - 10,
            "exp": now + 600,
        }
        return without_gaps({**good, **changes})

    def header(self, **changes: Any) -> Json:
        return without_gaps({"alg": self.key.algorithm, "typ": "JWT", "kid": self.key.id, **changes})

    def token(self, **claims: Any) -> str:
        """Good but for these claims."""
        return written(self.key, self.header(), self.claims(**claims))

    def headed(self, **header: Any) -> str:
        """Good but for these members of its header."""
        return written(self.key, self.header(**header), self.claims())

    def by(self, key: SigningKey, **header: Any) -> str:
        """Good, but signed with another key, which its header names."""
        return written(key, self.header(alg=key.algorithm, kid=key.id, **header), self.claims())

    @property
    def stranger(self) -> SigningKey:
        return STRANGERS[self.name]

    @property
    def other(self) -> SigningKey:
        """A key that counts, for the tokens of the other issuer."""
        return EC if self.name == "local" else LOCAL


@dataclass(frozen=True)
class Stage:
    """The API, the provider it trusts, and a second realm."""

    api: Api
    provider: IdentityProvider
    elsewhere: TestRealm

    def signer(self, name: str) -> Signer:
        issuer = ISSUER.issuer if name == "local" else self.provider.issuer
        return Signer(name, issuer, {"local": LOCAL, "rsa": RSA, "ec": EC}[name], self.api.realm, self.provider)

    def send(self, token: str | bytes, path: str = ADMIN_ROUTE) -> httpx.Response:
        raw = token if isinstance(token, bytes) else token.encode()
        return self.api.with_token(None).call("GET", path, headers={"Authorization": b"Bearer " + raw})


@pytest.fixture(scope="module")
def stage(module_database: Database) -> Iterator[Stage]:
    """Two keys of the provider have been good, and were withdrawn."""
    clock = Clock()
    with an_identity_provider() as provider, an_api_that_trusts(module_database, provider, clock) as api:
        provider.keys = [RSA, EC, *WITHDRAWN.values()]
        whole = PUBLISHED_WHOLE.private.private_numbers().private_value
        provider.further = [FOR_ENCRYPTION.jwk(use="enc"), PUBLISHED_WHOLE.jwk(d=segment(whole.to_bytes(32, "big")))]
        made = Stage(api, provider, a_realm(module_database))
        for name, key in WITHDRAWN.items():
            assert made.send(made.signer(name).by(key)).status_code == 200
        provider.keys = [RSA, EC]
        clock.advance(300)
        yield made


@pytest.fixture(params=["local", "rsa", "ec"])
def signer(request: pytest.FixtureRequest, stage: Stage) -> Signer:
    return stage.signer(request.param)


def refused(answer: httpx.Response) -> None:
    body = problem(answer, 401, "unauthenticated")
    assert body == {
        "type": "urn:tenure:problem:unauthenticated",
        "title": "Who calls is not known",
        "status": 401,
        "detail": "The token is not valid here.",
        "code": "unauthenticated",
    }
    assert answer.headers["www-authenticate"] == 'Bearer error="invalid_token"'


# How it is written


def respelt(signer: Signer, index: int) -> str:
    """With stray bits at the end of one part: a lenient reader finds the same bytes in it. Signed as it is sent."""
    key = SigningKey("EdDSA", LOCAL_KEY, signer.key.id) if signer.name == "local" else signer.key
    parts = [segment(_with_bits_to_spare(part)) for part in (signer.header(), signer.claims())]
    if index < 2:
        parts[index] = _stray(parts[index])
    parts.append(segment(key.sign(".".join(parts).encode())))
    if index == 2:
        parts[2] = _stray(parts[2])
    return ".".join(parts)


def _with_bits_to_spare(part: Json) -> bytes:
    raw = json.dumps(part).encode()
    return raw + b" " * ((1 - len(raw)) % 3)


def _stray(part: str) -> str:
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    return part[:-1] + alphabet[alphabet.index(part[-1]) + 1]


def part(token: str, index: int, change: Callable[[str], str]) -> str:
    parts = token.split(".")
    parts[index] = change(parts[index])
    return ".".join(parts)


def of_length(signer: Signer, length: int) -> str:
    """Good, and of about that length: a letter more of the claims is a third of one more than a letter of the token."""
    missing = length - len(signer.token(extra=""))
    return next(
        token for more in range(8) if len(token := signer.token(extra="x" * (missing * 3 // 4 + more))) >= length
    )


def der(signer: Signer) -> str:
    """As certificates have it: the curve's own signature, in another dress."""
    content = signer.token().rpartition(".")[0]
    return f"{content}.{segment(EC.private.sign(content.encode(), ECDSA(SHA256())))}"


def changed(signer: Signer) -> str:
    """Other claims under the signature of the good ones."""
    return part(signer.token(), 1, lambda _: segment(signer.claims(sub=ids.new(Prefix.USER))))


WRITTEN: dict[str, Callable[[Signer], str | bytes]] = {
    "a word": lambda s: "token",
    "dots": lambda s: "..",
    "an id": lambda s: s.realm.admin,
    "one part": lambda s: s.token().split(".")[0],
    "two parts": lambda s: s.token().rpartition(".")[0],
    "four parts": lambda s: s.token() + ".x",
    "five parts, as if encrypted": lambda s: s.token() + ".x.x",
    "no header": lambda s: part(s.token(), 0, lambda _: ""),
    "no claims, as if detached": lambda s: part(s.token(), 1, lambda _: ""),
    "no signature": lambda s: part(s.token(), 2, lambda _: ""),
    "half a signature": lambda s: part(s.token(), 2, lambda mark: mark[: len(mark) // 2]),
    "a signature twice": lambda s: part(s.token(), 2, lambda mark: mark * 2),
    "a signature of zeros": lambda s: part(s.token(), 2, lambda mark: "A" * len(mark)),
    "a signature in DER": der,
    "a padded header": lambda s: part(s.token(), 0, lambda head: head + "=" * (-len(head) % 4 or 4)),
    "padded claims": lambda s: part(s.token(), 1, lambda body: body + "=" * (-len(body) % 4 or 4)),
    "a padded signature": lambda s: s.token() + "=" * (-len(s.token().split(".")[2]) % 4),
    "a header spelt otherwise": lambda s: respelt(s, 0),
    "claims spelt otherwise": lambda s: respelt(s, 1),
    "a signature spelt otherwise": lambda s: respelt(s, 2),
    "the other base64": lambda s: s.token(a="??>>~~" * 5).replace("_", "/").replace("-", "+"),
    "with a space": lambda s: s.token().replace(".", ". ", 1),
    "with a tab": lambda s: s.token().replace(".", ".\t", 1),
    "with a comma": lambda s: s.token() + ",x",
    "twice": lambda s: f"{s.token()} {s.token()}",
    "in quotes": lambda s: f'"{s.token()}"',
    "with dots in percents": lambda s: s.token().replace(".", "%2E"),
    "with a stray sign": lambda s: s.token() + "!",
    "beyond ASCII": lambda s: s.token() + "é",
    "beyond UTF-8": lambda s: s.token().encode() + b"\xff",
    "changed claims": changed,
    "a little too long": lambda s: of_length(s, MAX_TOKEN + 1),
    "much too long": lambda s: s.token(extra="x" * MAX_TOKEN),
}


# Header and keys


def hmac_with(secret: Callable[[Signer], bytes]) -> Callable[[Signer], str]:
    """The oldest trick: what everybody knows taken for a shared secret."""

    def made(signer: Signer) -> str:
        content = f"{segment(signer.header(alg='HS256'))}.{segment(signer.claims())}"
        return f"{content}.{segment(hmac.digest(secret(signer), content.encode(), hashlib.sha256))}"

    return made


def unsigned(alg: str) -> Callable[[Signer], str]:
    return lambda signer: f"{segment(signer.header(alg=alg))}.{segment(signer.claims())}."


def with_another_algorithm(signer: Signer) -> str:
    """Well signed by the very key of the issuer, but not as that key is meant to sign."""
    others = {"local": "Ed25519", "rsa": "RS512", "ec": "ES512"}
    if signer.name == "rsa":
        return written(replace(signer.key, algorithm="RS512"), signer.header(alg="RS512"), signer.claims())
    return signer.headed(alg=others[signer.name])


def pss(signer: Signer) -> str:
    key = replace(signer.key, algorithm="PS256") if signer.name == "rsa" else signer.key
    return written(key, signer.header(alg="PS256"), signer.claims())


def weak(signer: Signer) -> str:
    small = SigningKey("RS256", rsa_key(1024))
    return signer.by(small, jwk=small.jwk())


HEADED: dict[str, Callable[[Signer], str | bytes]] = {
    "alg none": unsigned("none"),
    "alg NonE": unsigned("NonE"),
    "alg none with a signature": lambda s: s.headed(alg="none"),
    "no alg": lambda s: s.headed(alg=...),
    "alg null": lambda s: s.headed(alg=None),
    "algs": lambda s: s.headed(alg=[s.key.algorithm]),
    "alg as a number": lambda s: s.headed(alg=256),
    "alg in small letters": lambda s: s.headed(alg=s.key.algorithm.lower()),
    "alg with a newline": lambda s: s.headed(alg=s.key.algorithm + "\n"),
    "another algorithm of the key": with_another_algorithm,
    "PS256": pss,
    "EdDSA in the header": lambda s: s.headed(alg="EdDSA" if s.name != "local" else "ES256"),
    "RS256 in the header": lambda s: s.headed(alg="RS256" if s.name != "rsa" else "RS384"),
    "HS256 with the public key": hmac_with(lambda s: s.key.pem()),
    "HS256 with the public key, cut": hmac_with(lambda s: s.key.pem().strip()),
    "HS256 with the JWK": hmac_with(lambda s: json.dumps(s.key.jwk()).encode()),
    "HS256 with the key's id": hmac_with(lambda s: s.key.id.encode()),
    "HS256 with nothing": hmac_with(lambda s: b""),
    "no key id": lambda s: s.headed(kid=...),
    "a null key id": lambda s: s.headed(kid=None),
    "an empty key id": lambda s: s.headed(kid=""),
    "a key id that is a number": lambda s: s.headed(kid=5),
    "key ids": lambda s: s.headed(kid=[s.key.id]),
    "a key id that is an object": lambda s: s.headed(kid={"kid": s.key.id}),
    "a long key id": lambda s: s.headed(kid="x" * 300),
    "a key id with a newline": lambda s: s.headed(kid=s.key.id + "\n"),
    "a key id with NUL": lambda s: s.headed(kid=s.key.id + "\0"),
    "a path as key id": lambda s: s.headed(kid="../../../../dev/null"),
    "SQL as key id": lambda s: s.headed(kid="x' UNION SELECT 'secret' --"),
    "an unknown key id": lambda s: s.headed(kid="unknown"),
    "the id of the other issuer's key": lambda s: s.headed(kid=s.other.id),
    "the other issuer's key": lambda s: s.by(s.other),
    "the other issuer's key as ours": lambda s: s.by(s.other.called(s.key.id)),
    "a stranger's key": lambda s: s.by(s.stranger),
    "a stranger's key as ours": lambda s: s.by(s.stranger.called(s.key.id)),
    "a stranger's key in the header": lambda s: s.by(s.stranger, jwk=s.stranger.jwk()),
    "our own key in the header": lambda s: s.headed(jwk=s.key.jwk()),
    "a stranger's keys to be fetched": lambda s: s.by(s.stranger, jku=s.provider.issuer + "/theirs"),
    "our own keys to be fetched": lambda s: s.headed(jku=s.provider.issuer + "/keys"),
    "a certificate to be fetched": lambda s: s.by(s.stranger, x5u=s.provider.issuer + "/theirs"),
    "a certificate": lambda s: s.by(s.stranger, x5c=["MIIB"]),
    "a weak key": weak,
    "a key for encryption": lambda s: s.by(FOR_ENCRYPTION),
    "a key that is published whole": lambda s: s.by(PUBLISHED_WHOLE),
    "a withdrawn RSA key": lambda s: s.by(WITHDRAWN["rsa"]),
    "a withdrawn EC key": lambda s: s.by(WITHDRAWN["ec"]),
    "critical headers": lambda s: s.headed(crit=["exp"], exp=1),
    "no critical headers": lambda s: s.headed(crit=[]),
    "detached": lambda s: s.headed(b64=False, crit=["b64"]),
    "b64": lambda s: s.headed(b64=True),
    "a token within": lambda s: s.headed(cty="JWT"),
    "a token as claims": lambda s: written(s.key, s.header(), s.token().encode()),
    "compressed": lambda s: s.headed(zip="DEF"),
    "encrypted": lambda s: s.headed(enc="A256GCM"),
    "another type": lambda s: s.headed(typ="logout+jwt"),
    "a null type": lambda s: s.headed(typ=None),
    "types": lambda s: s.headed(typ=["JWT"]),
    "a header that is a list": lambda s: written(s.key, b"[]", s.claims()),
    "a header that is not JSON": lambda s: written(s.key, b"{", s.claims()),
    "a header with alg twice": lambda s: written(s.key, twice(s.header(), "alg"), s.claims()),
    "a header with kid twice": lambda s: written(s.key, twice(s.header(), "kid"), s.claims()),
    "a header in UTF-16": lambda s: written(s.key, json.dumps(s.header()).encode("utf-16"), s.claims()),
}


# Claims


def twice(members: Json, name: str) -> bytes:
    return json.dumps(members)[:-1].encode() + b"," + json.dumps({name: members[name]})[1:].encode()


def raw(signer: Signer, more: bytes) -> str:
    """With JSON among the claims that Python would not write."""
    return written(signer.key, signer.header(), json.dumps(signer.claims())[:-1].encode() + b"," + more + b"}")


def at(seconds: int) -> int:
    return int(time.time()) + seconds


CLAIMED: dict[str, Callable[[Signer], str | bytes]] = {
    "another issuer": lambda s: s.token(iss="https://id.example.org"),
    "the other issuer": lambda s: s.token(iss=s.provider.issuer if s.name == "local" else ISSUER.issuer),
    "a slash more": lambda s: s.token(iss=s.issuer + "/"),
    "the issuer in capitals": lambda s: s.token(iss=s.issuer.upper()),
    "the issuer with a newline": lambda s: s.token(iss=s.issuer + "\n"),
    "no issuer": lambda s: s.token(iss=...),
    "a null issuer": lambda s: s.token(iss=None),
    "issuers": lambda s: s.token(iss=[s.issuer]),
    "an issuer that is an object": lambda s: s.token(iss={s.issuer: True}),
    "another audience": lambda s: s.token(aud="other"),
    "both audiences": lambda s: s.token(aud=["admin", "account"]),
    "no audience": lambda s: s.token(aud=...),
    "a null audience": lambda s: s.token(aud=None),
    "an empty audience": lambda s: s.token(aud=""),
    "no audiences": lambda s: s.token(aud=[]),
    "an audience of any kind": lambda s: s.token(aud={"admin": True}),
    "part of the audience": lambda s: s.token(aud="adm"),
    "more than the audience": lambda s: s.token(aud="administrator"),
    "audiences in one text": lambda s: s.token(aud="admin account"),
    "audiences that are no texts": lambda s: s.token(aud=["admin", 5]),
    "no subject": lambda s: s.token(sub=...),
    "a null subject": lambda s: s.token(sub=None),
    "an empty subject": lambda s: s.token(sub=""),
    "a blank subject": lambda s: s.token(sub=" "),
    "a subject of another kind": lambda s: s.token(sub=s.realm.id),
    "an address as subject": lambda s: s.token(sub="admin@example.org"),
    "a subject with a newline": lambda s: s.token(sub=s.realm.admin + "\n"),
    "a subject in capitals": lambda s: s.token(sub=s.realm.admin.upper()),
    "a subject that is a number": lambda s: s.token(sub=5),
    "subjects": lambda s: s.token(sub=[s.realm.admin]),
    "no realm": lambda s: s.token(realm=...),
    "a realm of another kind": lambda s: s.token(realm=s.realm.admin),
    "realms": lambda s: s.token(realm=[s.realm.id]),
    "expired": lambda s: s.token(exp=at(-1)),
    "expired long ago": lambda s: s.token(iat=at(-7200), exp=at(-3600)),
    "never expiring": lambda s: s.token(exp=...),
    "a null expiry": lambda s: s.token(exp=None),
    "an expiry as text": lambda s: s.token(exp=str(at(600))),
    "an expiry with decimals": lambda s: s.token(exp=at(600) + 0.5),
    "an expiry that is true": lambda s: s.token(exp=True),
    "an expiry in a thousand years": lambda s: s.token(exp=at(10**10)),
    "an expiry of 10^30": lambda s: s.token(exp=10**30),
    "an expiry of 1e400": lambda s: raw(s, b'"exp":1e400'),
    "a number of 5000 digits": lambda s: raw(s, b'"b":' + b"9" * 5000),
    "infinity": lambda s: raw(s, b'"b":Infinity'),
    "a negative expiry": lambda s: s.token(exp=-1),
    "no time of issue": lambda s: s.token(iat=...),
    "issued tomorrow": lambda s: s.token(iat=at(86_400), exp=at(90_000)),
    "issued as text": lambda s: s.token(iat=str(at(-10))),
    "issued long ago": lambda s: s.token(iat=at(-100_000)),
    "issued before all time": lambda s: s.token(iat=-(10**15)),
    "not valid yet": lambda s: s.token(nbf=at(300)),
    "not before a text": lambda s: s.token(nbf="soon"),
    "methods as a text": lambda s: s.token(amr="mfa"),
    "methods as an object": lambda s: s.token(amr={"mfa": True}),
    "methods of any kind": lambda s: s.token(amr=["mfa", 5]),
    "null methods": lambda s: s.token(amr=None),
    "a jti that is a number": lambda s: s.token(jti=5),
    "a subject twice": lambda s: raw(s, b'"sub":' + json.dumps(s.realm.admin).encode()),
    "an audience twice": lambda s: raw(s, b'"aud":"admin"'),
    "an expiry twice": lambda s: raw(s, b'"exp":' + str(at(600)).encode()),
    "NaN": lambda s: raw(s, b'"a":NaN'),
    "half a surrogate": lambda s: raw(s, b'"a":"\\ud800"'),
    "NUL": lambda s: raw(s, b'"a":"\\u0000"'),
    "claims that are a list": lambda s: written(s.key, s.header(), b"[]"),
    "claims that are a text": lambda s: written(s.key, s.header(), b'"sub"'),
    "claims that are null": lambda s: written(s.key, s.header(), b"null"),
    "claims that are not JSON": lambda s: written(s.key, s.header(), b"sub"),
    "claims that are not UTF-8": lambda s: written(s.key, s.header(), b"\xff\xfe"),
    "claims without end": lambda s: written(s.key, s.header(), b"[" * 2000 + b"]" * 2000),
}

WRONG = {**WRITTEN, **HEADED, **CLAIMED}


def test_the_good_token_opens_the_route(stage: Stage, signer: Signer) -> None:
    assert stage.send(signer.token()).status_code == 200
    assert stage.send(signer.headed(typ="at+jwt", x5t="MIIB")).status_code == 200
    assert stage.send(of_length(signer, MAX_TOKEN - 8)).status_code == 200
    assert stage.send(signer.token(aud="account", amr=...), ACCOUNT_ROUTE).status_code == 200


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_token_is_refused(name: str, stage: Stage, signer: Signer) -> None:
    refused(stage.send(WRONG[name](signer)))


def test_nothing_that_a_token_names_is_fetched(stage: Stage) -> None:
    for name in WRONG:
        stage.send(WRONG[name](stage.signer("ec")))
    assert "/theirs" not in stage.provider.asked


# Whom it is of and for


def a_service_principal(realm: TestRealm, state: str = "active") -> str:
    """One that may read users."""
    return realm.principal(realm.role(None, "realm.users.read", boundary="realm"), state=state)


NOBODY: dict[str, Callable[[Stage, TestRealm], str]] = {
    "a suspended user": lambda _, realm: realm.user(state="suspended"),
    "a deleted user": lambda _, realm: realm.user(state="deleted"),
    "an unknown user": lambda _, realm: ids.new(Prefix.USER),
    "a user of another realm": lambda stage, _: stage.elsewhere.admin,
    "a disabled service principal": lambda _, realm: a_service_principal(realm, "disabled"),
    "an unknown service principal": lambda _, realm: ids.new(Prefix.SERVICE_PRINCIPAL),
    "a service principal of another realm": lambda stage, _: a_service_principal(stage.elsewhere),
}


@pytest.mark.parametrize("path", [ADMIN_ROUTE, ACCOUNT_ROUTE])
@pytest.mark.parametrize("name", NOBODY)
def test_a_token_of_nobody_who_may_call_is_refused(name: str, path: str, stage: Stage, signer: Signer) -> None:
    audience = "admin" if path == ADMIN_ROUTE else "account"
    refused(stage.send(signer.token(sub=NOBODY[name](stage, signer.realm), aud=audience), path))


def test_a_token_is_for_one_of_the_two_audiences(stage: Stage, signer: Signer) -> None:
    for wrong, path in (("account", ADMIN_ROUTE), ("admin", ACCOUNT_ROUTE)):
        refused(stage.send(signer.token(aud=wrong), path))
        refused(stage.send(signer.token(aud=["admin", "account"]), path))
        refused(stage.send(signer.token(aud=[wrong, "other"]), path))


def test_a_service_principal_administers_with_a_token_of_its_own_and_has_no_account(
    stage: Stage, signer: Signer
) -> None:
    machine = a_service_principal(signer.realm)
    assert stage.send(signer.token(sub=machine, amr=...)).status_code == 200
    refused(stage.send(signer.token(sub=machine, amr=..., aud="account"), ACCOUNT_ROUTE))
    refused(stage.send(signer.token(sub=machine, amr=...), ACCOUNT_ROUTE))
    refused(stage.send(signer.token(sub=machine, amr=..., aud="account")))
