"""Which keys of a JWK set count, and that those which do not take no good one along."""

from __future__ import annotations

import base64
from typing import Any

import jwt
import pytest

from api.jwks import ALGORITHMS, keys_of
from tests.definitions import Json
from tests.forging import SigningKey, rsa_key

RSA, EC, ED = SigningKey.new("RS256"), SigningKey.new("ES256"), SigningKey.new("EdDSA")
WEAK = SigningKey("RS256", rsa_key(1024))

ALLOWED = [algorithm for algorithms in ALGORITHMS.values() for algorithm in algorithms]


def number(value: int) -> str:
    return base64.urlsafe_b64encode(value.to_bytes((value.bit_length() + 7) // 8, "big")).rstrip(b"=").decode()


def private(key: SigningKey) -> Json:
    """The whole key, as it must never be published."""
    written: Json = jwt.get_algorithm_by_name(key.algorithm).to_jwk(key.private, as_dict=True)
    return {**key.jwk(key_ops=...), **{name: value for name, value in written.items() if name != "key_ops"}}


@pytest.mark.parametrize("algorithm", ALLOWED)
def test_a_key_is_for_the_algorithm_it_names(algorithm: str) -> None:
    key = SigningKey.new(algorithm)
    (found,) = keys_of({"keys": [key.jwk()]}).values()
    assert found.algorithm == algorithm


@pytest.mark.parametrize(
    ("algorithm", "meant"),
    [*((name, "RS256") for name in ALLOWED[:6]), *((name, name) for name in ALLOWED[6:])],
)
def test_a_key_that_names_no_algorithm_is_for_the_one_of_its_kind(algorithm: str, meant: str) -> None:
    key = SigningKey.new(algorithm)
    (found,) = keys_of({"keys": [key.jwk(alg=..., use=...)]}).values()
    assert found.algorithm == meant


STRANGE: dict[str, Any] = {
    "a text": "key",
    "null": None,
    "a list": [RSA.jwk()],
    "nothing in it": {},
    "no id": EC.jwk(kid=...),
    "an empty id": EC.jwk(kid=""),
    "an id that is a number": EC.jwk(kid=5),
    "ids": EC.jwk(kid=["a"]),
    "a long id": EC.jwk(kid="x" * 201),
    "no kind": EC.jwk(kty=...),
    "an unknown kind": EC.jwk(kty="AKP"),
    "kinds": EC.jwk(kty=["EC"]),
    "for encryption": RSA.jwk(use="enc"),
    "for a use that is a list": RSA.jwk(use=["sig"]),
    "for signing only": RSA.jwk(key_ops=["sign"]),
    "for operations that are a text": RSA.jwk(key_ops="verify"),
    "a shared secret": {"kty": "oct", "kid": "k", "alg": "HS256", "k": "c2VjcmV0" * 8},
    "a shared secret for RS256": {"kty": "oct", "kid": "k", "alg": "RS256", "k": "c2VjcmV0" * 8},
    "alg HS256": RSA.jwk(alg="HS256"),
    "alg none": RSA.jwk(alg="none"),
    "alg null": RSA.jwk(alg=None),
    "algs": RSA.jwk(alg=["RS256"]),
    "alg in small letters": RSA.jwk(alg="rs256"),
    "alg of encryption": RSA.jwk(alg="RSA-OAEP"),
    "alg of another kind": RSA.jwk(alg="ES256"),
    "alg of another curve": EC.jwk(alg="ES384"),
    "EdDSA over RSA": RSA.jwk(alg="EdDSA"),
    "a private RSA key": private(RSA),
    "a private EC key": private(EC),
    "a private Ed25519 key": private(ED),
    "a private key that is null": RSA.jwk(d=None),
    "RSA of 1024 bits": WEAK.jwk(),
    "RSA of 2047 bits": RSA.jwk(n=number((1 << 2047) - 1)),
    "RSA of 16384 bits": RSA.jwk(n=number((1 << 16384) - 1)),
    "RSA of a million bits": RSA.jwk(n=number((1 << 1_000_000) - 1)),
    "RSA with exponent 1": RSA.jwk(e=number(1)),
    "RSA with exponent 2": RSA.jwk(e=number(2)),
    "RSA with a huge exponent": RSA.jwk(e=number((1 << 2000) + 1)),
    "RSA without modulus": RSA.jwk(n=...),
    "RSA with a number": RSA.jwk(n=5),
    "RSA with a curve": RSA.jwk(crv="P-256"),
    "EC off its curve": EC.jwk(y=EC.jwk()["x"]),
    "EC at infinity": EC.jwk(x="A" * 43, y="A" * 43),
    "EC too short": EC.jwk(x="AAAA"),
    "EC of another curve": EC.jwk(crv="P-384"),
    "EC of secp256k1": EC.jwk(crv="secp256k1", alg="ES256K"),
    "EC without a curve": EC.jwk(crv=...),
    "EC of curves": EC.jwk(crv=["P-256"]),
    "EC with no point": EC.jwk(x=None),
    "EC with a point beyond base64": EC.jwk(x="é" * 43),
    "Ed25519 too short": ED.jwk(x="AAAA"),
    "Ed448": ED.jwk(crv="Ed448"),
    "X25519": ED.jwk(crv="X25519"),
}


@pytest.mark.parametrize("name", STRANGE)
def test_a_strange_entry_does_not_count_and_takes_no_good_key_along(name: str) -> None:
    good = SigningKey.new("ES256")
    assert keys_of({"keys": [STRANGE[name]]}) == {}
    assert list(keys_of({"keys": [STRANGE[name], good.jwk(), STRANGE[name]]})) == [good.id]


def test_two_keys_of_one_id_are_none_but_one_for_encryption_is_no_second() -> None:
    other, third = SigningKey.new("ES256").called(EC.id), SigningKey.new("EdDSA")
    assert list(keys_of({"keys": [EC.jwk(), other.jwk(), third.jwk()]})) == [third.id]
    assert list(keys_of({"keys": [EC.jwk(), private(other), third.jwk()]})) == [third.id]
    assert list(keys_of({"keys": [other.jwk(use="enc"), EC.jwk()]})) == [EC.id]


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        [EC.jwk()],
        "keys",
        5,
        {},
        {"keys": None},
        {"keys": {}},
        {"keys": {"0": EC.jwk()}},
        {"keys": "x"},
        {"keys": []},
    ],
)
def test_what_is_no_key_set_holds_no_key(document: Any) -> None:
    assert keys_of(document) == {}
