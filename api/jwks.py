"""Which keys of a JWK set count (RFC 7517, 7518, 8037, 8725): public keys for signatures, sound, and each for one algorithm.

Whatever else is in the set is passed over, so that one strange entry takes no good key along.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import jwt
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from jwt.exceptions import PyJWTError

from api.tokens import VerifyingKey

ALGORITHMS: Mapping[tuple[object, object], tuple[str, ...]] = {
    ("RSA", None): ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    ("EC", "P-256"): ("ES256",),
    ("EC", "P-384"): ("ES384",),
    ("EC", "P-521"): ("ES512",),
    ("OKP", "Ed25519"): ("EdDSA",),
}
"""Kind and curve of a key -> the algorithms it may be for. Where the key names none, the first is meant. `none` and what takes
a shared secret are not among them: no public key is a secret."""

_SECRET = frozenset({"d", "p", "q", "dp", "dq", "qi", "oth", "k"})
"""Members of a private or shared key. One that has been published is everybody's."""

_RSA_BITS = range(2048, 8192 + 1)
_RSA_EXPONENT_BITS = 64
"""OpenSSL's own limit for large keys; beyond these bounds a key is weak, or slow enough to be a weapon."""


def keys_of(jwk_set: object) -> dict[str, VerifyingKey]:
    """The keys that count, by their ids. Empty if there is none, or `jwk_set` is no JWK set at all."""
    listed = jwk_set.get("keys") if isinstance(jwk_set, dict) else None
    if not isinstance(listed, list):
        return {}
    signing = [jwk for jwk in listed if isinstance(jwk, dict) and _key_id(jwk) and _is_for_signatures(jwk)]
    # Two keys of one id: which of them is meant would be for the order of a list to say, so neither is.
    times = Counter(_key_id(jwk) for jwk in signing)
    found = {key_id: _key(jwk) for jwk in signing if times[key_id := _key_id(jwk)] == 1}
    return {key_id: key for key_id, key in found.items() if key is not None}


def _key_id(jwk: Mapping[str, Any]) -> str:
    key_id = jwk.get("kid")
    return key_id if isinstance(key_id, str) and len(key_id) <= 200 else ""


def _is_for_signatures(jwk: Mapping[str, Any]) -> bool:
    """Some providers list a key for encryption under the id of the one for signatures: it is not one of ours."""
    uses = jwk.get("key_ops", ["verify"])
    return jwk.get("use", "sig") == "sig" and isinstance(uses, list) and "verify" in uses


def _key(jwk: Mapping[str, Any]) -> VerifyingKey | None:
    kind, curve = jwk.get("kty"), jwk.get("crv")
    if not isinstance(kind, str) or not isinstance(curve, str | None) or not _SECRET.isdisjoint(jwk):
        return None
    possible = ALGORITHMS.get((kind, curve), ())
    algorithm = jwk.get("alg", next(iter(possible), None))
    if algorithm not in possible:
        return None
    try:
        key = jwt.PyJWK(dict(jwk), algorithm).key
    except (PyJWTError, ValueError, TypeError, UnsupportedAlgorithm):  # a point off its curve, among others
        return None
    return VerifyingKey(key, algorithm) if _is_sound(key) else None


def _is_sound(key: object) -> bool:
    if not isinstance(key, RSAPublicKey):
        return True
    return key.key_size in _RSA_BITS and key.public_numbers().e.bit_length() <= _RSA_EXPONENT_BITS
