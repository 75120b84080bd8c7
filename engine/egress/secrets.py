"""Webhook secrets at rest: AES-256-GCM, bound to realm and subscription (lifecycle.md, decision 9).

A ciphertext is `<key id>:` + 12 bytes of nonce + what AES-GCM gives. One copied to the row of another subscription
does not open. Keys come from TENURE_SECRET_KEYS (`id:base64,id:base64`: the first encrypts, all decrypt) or, without
it, from `secrets.key` in the data folder, made on first use.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from engine.core.errors import Refused
from engine.core.key_file import create_key_file

FILE = "secrets.key"
VARIABLE = "TENURE_SECRET_KEYS"

_KEY_BYTES = 32
_NONCE_BYTES = 12
_KEY_ID = re.compile(r"[A-Za-z0-9_-]{1,32}")
_PURPOSE = "tenure webhook secret"


class Keyring:
    """The keys that are in use. Shows nothing of them."""

    def __init__(self, keys: Mapping[str, bytes]) -> None:
        """`keys` by id, each of 32 bytes; the first encrypts."""
        if not keys or not all(_KEY_ID.fullmatch(name) and len(key) == _KEY_BYTES for name, key in keys.items()):
            raise _unavailable("A secret key has an id of 1 to 32 letters, digits, _ or - and exactly 32 bytes.")
        self._ciphers = {name: AESGCM(key) for name, key in keys.items()}
        self._current = next(iter(keys))

    @classmethod
    def load(cls, data_dir: Path, *, environment: Mapping[str, str] = os.environ) -> Keyring:
        """The keys of the environment, else of the file in `data_dir`. Raises Refused("secret_unavailable")."""
        written = environment.get(VARIABLE)
        if written:
            return cls(_parsed(written, VARIABLE))
        path = data_dir / FILE
        try:
            if not path.exists():
                _create(path)
            if stat.S_IMODE(path.stat().st_mode) & 0o077:
                raise _unavailable(f"{FILE} can be read by others: set its mode to 0600.")
            return cls(_parsed(path.read_text("ascii"), FILE))
        except (OSError, UnicodeError) as error:
            raise _unavailable(f"{FILE} cannot be read or made in the data folder.") from error

    def encrypt(self, plaintext: str, *, bound_to: tuple[str, str]) -> bytes:
        """The ciphertext of a secret of `bound_to`: realm id, subscription id."""
        nonce = os.urandom(_NONCE_BYTES)
        sealed = self._ciphers[self._current].encrypt(nonce, plaintext.encode(), _binding(self._current, bound_to))
        return self._current.encode() + b":" + nonce + sealed

    def decrypt(self, ciphertext: bytes, *, bound_to: tuple[str, str]) -> str:
        """The secret. Raises Refused("secret_unavailable"): key unknown, ciphertext changed, or bound to another."""
        name, _, rest = bytes(ciphertext).partition(b":")
        key_id = name.decode("ascii", "replace")
        cipher = self._ciphers.get(key_id)
        if cipher is None:
            raise _unavailable("The secret was encrypted under a key that is not in use here.")
        try:
            plain = cipher.decrypt(rest[:_NONCE_BYTES], rest[_NONCE_BYTES:], _binding(key_id, bound_to))
            return plain.decode()
        except (InvalidTag, ValueError):
            raise _unavailable(
                "The secret cannot be read: it was changed, or belongs to another subscription."
            ) from None

    def __repr__(self) -> str:
        return "Keyring()"

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("a keyring does not leave its process")


def _binding(key_id: str, bound_to: tuple[str, str]) -> bytes:
    return json.dumps([_PURPOSE, key_id, *bound_to]).encode()


def _parsed(written: str, source: str) -> dict[str, bytes]:
    keys: dict[str, bytes] = {}
    for entry in written.strip().split(","):
        key_id, _, encoded = entry.strip().partition(":")
        try:
            key = base64.b64decode(encoded, validate=True)
        except (binascii.Error, ValueError):
            raise _unavailable(f"{source} is not a list of id:base64.") from None
        if key_id in keys:
            raise _unavailable(f"{source} names a key twice.")
        keys[key_id] = key
    return keys


def _create(path: Path) -> None:
    create_key_file(path, b"k1:" + base64.b64encode(os.urandom(_KEY_BYTES)) + b"\n")


def _unavailable(message: str) -> Refused:
    return Refused("secret_unavailable", message)
