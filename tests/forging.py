"""Keys that sign, and tokens made of any parts: what the JWT library would not sign, somebody else does.

key = SigningKey.new("RS256")
written(key, {"alg": "RS256", "kid": key.id}, {"sub": "..."})
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from tests.definitions import Json
from tests.factories import unique

CURVES = {"ES256": ec.SECP256R1, "ES384": ec.SECP384R1, "ES512": ec.SECP521R1}


@dataclass(frozen=True)
class SigningKey:
    """A private key, and the one algorithm it is for."""

    algorithm: str
    private: Any = field(repr=False)
    id: str = field(default_factory=lambda: unique("key"))

    @classmethod
    def new(cls, algorithm: str) -> SigningKey:
        """A fresh key; of RSA one a process for each of its algorithms, for they take long to make."""
        if algorithm in CURVES:
            return cls(algorithm, ec.generate_private_key(CURVES[algorithm]()))
        return cls(algorithm, Ed25519PrivateKey.generate() if algorithm == "EdDSA" else rsa_key(2048, algorithm))

    def called(self, key_id: str) -> SigningKey:
        """The same key under another id."""
        return replace(self, id=key_id)

    def sign(self, content: bytes) -> bytes:
        """A signature as JWS has it."""
        return bytes(jwt.get_algorithm_by_name(self.algorithm).sign(content, self.private))

    def jwk(self, **changes: Any) -> Json:
        """The public key as an entry of a JWK set, changed; a member set to `...` is left out."""
        public = jwt.get_algorithm_by_name(self.algorithm).to_jwk(self.private.public_key(), as_dict=True)
        return without_gaps({**public, "kid": self.id, "alg": self.algorithm, "use": "sig", **changes})

    def pem(self) -> bytes:
        """The public key as it lies about everywhere."""
        return bytes(self.private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))


@cache
def rsa_key(bits: int, name: str = "") -> rsa.RSAPrivateKey:
    """One RSA key of that size a process and name."""
    return rsa.generate_private_key(65537, bits)


def without_gaps(members: Mapping[str, Any]) -> Json:
    """Without the members that are `...`."""
    return {name: value for name, value in members.items() if value is not ...}


def segment(value: bytes | Json) -> str:
    """JSON, or any bytes, in base64url."""
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def written(key: SigningKey, head: bytes | Json, body: bytes | Json) -> str:
    """Any header over any claims, with a good signature of that key."""
    content = f"{segment(head)}.{segment(body)}"
    return f"{content}.{segment(key.sign(content.encode()))}"
