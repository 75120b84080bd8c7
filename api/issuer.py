"""The local issuer: signs tokens for a machine on its own, with an Ed25519 key that lies in the data folder, mode 0600.

Whoever can read that file can be anybody: it is the machine's own.
"""

from __future__ import annotations

import base64
import hashlib
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from api.settings import LOCAL_ISSUER
from api.tokens import Audience, VerifyingKey
from engine.core.errors import Refused
from engine.core.ids import Prefix, is_id
from engine.core.key_file import create_key_file

KEY_FILE = "issuer.key"


class LocalIssuer:
    """Signs tokens with a key of its own, which lies in the data folder, and is the source of that key."""

    def __init__(self, key: Ed25519PrivateKey, issuer: str = LOCAL_ISSUER) -> None:
        self._key = key
        self.issuer = issuer
        raw = key.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
        self._public = raw
        self.key_id = _base64url(hashlib.sha256(raw).digest()[:12])

    @classmethod
    def load(cls, data_dir: Path, issuer: str = LOCAL_ISSUER) -> LocalIssuer:
        """The issuer whose key is in `data_dir`; made on first use. Raises Refused("secret_unavailable")."""
        path = data_dir / KEY_FILE
        try:
            if not path.exists():
                _create(path)
            if stat.S_IMODE(path.stat().st_mode) & 0o077:
                raise Refused("secret_unavailable", f"{KEY_FILE} can be read by others: set its mode to 0600.")
            key = serialization.load_pem_private_key(path.read_bytes(), None)
        except (OSError, ValueError, TypeError) as error:
            raise Refused("secret_unavailable", f"{KEY_FILE} cannot be read or made in the data folder.") from error
        if not isinstance(key, Ed25519PrivateKey):
            raise Refused("secret_unavailable", f"{KEY_FILE} does not hold an Ed25519 key.")
        return cls(key, issuer)

    def issue(
        self,
        realm_id: str,
        subject_id: str,
        audience: Audience = "admin",
        lifetime: timedelta = timedelta(hours=1),
        *,
        mfa: bool = True,
    ) -> str:
        """A token for a user or a service principal, which has no sign-in to tell of, from now on. Whether there is one is asked
        when the token is used."""
        methods = [] if is_id(subject_id, Prefix.SERVICE_PRINCIPAL) else ["pwd", "mfa"] if mfa else ["pwd"]
        issued_at = int(datetime.now(UTC).timestamp())
        claims = {
            "iss": self.issuer,
            "aud": audience,
            "sub": subject_id,
            "realm": realm_id,
            **({"amr": methods} if methods else {}),
            "iat": issued_at,
            "exp": issued_at + int(lifetime.total_seconds()),
        }
        return jwt.encode(claims, self._key, "EdDSA", {"kid": self.key_id})

    def find(self, key_id: str) -> VerifyingKey | None:
        """As KeySource."""
        return VerifyingKey(self.public_key, "EdDSA") if key_id == self.key_id else None

    @property
    def public_key(self) -> Ed25519PublicKey:
        """What others verify with."""
        return self._key.public_key()

    def jwks(self) -> dict[str, Any]:
        """The public key as a JWK set (RFC 7517)."""
        key = {"kty": "OKP", "crv": "Ed25519", "use": "sig", "alg": "EdDSA", "kid": self.key_id}
        return {"keys": [{**key, "x": _base64url(self._public)}]}

    def __repr__(self) -> str:
        return f"LocalIssuer({self.issuer!r}, {self.key_id!r})"

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("an issuer's key does not leave its process")


def _base64url(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _create(path: Path) -> None:
    pem = Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    create_key_file(path, pem)
