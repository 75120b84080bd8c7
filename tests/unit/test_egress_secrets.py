"""Webhook secrets at rest."""

from __future__ import annotations

import base64
import os
import pickle
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from engine.core.errors import Refused
from engine.egress.secrets import Keyring

HERE = ("rlm_1", "whk_1")


def key_list(*names: str) -> str:
    return ",".join(f"{name}:{base64.b64encode(name.encode().ljust(32)).decode()}" for name in names)


def keyring(*names: str) -> Keyring:
    return Keyring.load(Path("/nowhere"), environment={"TENURE_SECRET_KEYS": key_list(*names)})


def test_a_secret_comes_back_and_is_nowhere_in_the_ciphertext() -> None:
    sealed = keyring("a").encrypt("whsec_Zoë", bound_to=HERE)
    assert sealed.startswith(b"a:")
    assert b"whsec" not in sealed
    assert keyring("a").decrypt(sealed, bound_to=HERE) == "whsec_Zoë"


def test_the_same_secret_is_never_encrypted_to_the_same_bytes() -> None:
    ring = keyring("a")
    assert len({ring.encrypt("s", bound_to=HERE) for _ in range(100)}) == 100


@pytest.mark.parametrize("elsewhere", [("rlm_2", "whk_1"), ("rlm_1", "whk_2"), ("rlm_1whk", "_1"), ("rlm_1", "whk_1 ")])
def test_a_ciphertext_copied_to_another_realm_or_subscription_does_not_open(elsewhere: tuple[str, str]) -> None:
    ring = keyring("a")
    with pytest.raises(Refused) as refusal:
        ring.decrypt(ring.encrypt("whsec_x", bound_to=HERE), bound_to=elsewhere)
    assert refusal.value.category == "secret_unavailable"


def test_a_ciphertext_changed_in_any_byte_or_cut_anywhere_does_not_open() -> None:
    ring = keyring("a", "b")
    sealed = ring.encrypt("whsec_x", bound_to=HERE)
    broken = [sealed[:i] + bytes([sealed[i] ^ 1]) + sealed[i + 1 :] for i in range(len(sealed))]
    broken += [sealed[:i] for i in range(len(sealed))] + [b"b" + sealed[1:], sealed + b"\0"]
    for ciphertext in broken:
        with pytest.raises(Refused) as refusal:
            ring.decrypt(ciphertext, bound_to=HERE)
        assert refusal.value.category == "secret_unavailable"


def test_a_new_key_encrypts_while_the_old_one_still_opens() -> None:
    old = keyring("old").encrypt("whsec_x", bound_to=HERE)
    both = keyring("new", "old")
    assert both.decrypt(old, bound_to=HERE) == "whsec_x"
    assert both.encrypt("whsec_x", bound_to=HERE).startswith(b"new:")
    with pytest.raises(Refused, match="not in use"):
        keyring("new").decrypt(old, bound_to=HERE)


def test_the_file_is_made_once_private_and_read_by_the_next_process(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    sealed = Keyring.load(folder, environment={}).encrypt("whsec_x", bound_to=HERE)
    assert stat.S_IMODE((folder / "secrets.key").stat().st_mode) == 0o600
    assert [path.name for path in folder.iterdir()] == ["secrets.key"]
    assert Keyring.load(folder, environment={}).decrypt(sealed, bound_to=HERE) == "whsec_x"


def test_processes_that_start_at_once_agree_on_the_key(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from engine.egress.secrets import Keyring\n"
        "print('ready', flush=True); sys.stdin.readline()\n"
        "ring = Keyring.load(Path(sys.argv[1]), environment={})\n"
        "print(ring.encrypt('whsec_x', bound_to=('r', 'w')).hex())"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    starters = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(6)]
    for starter in starters:
        assert starter.stdout is not None
        assert starter.stdout.readline() == "ready\n"
    for starter in starters:
        assert starter.stdin is not None
        starter.stdin.write("\n")
        starter.stdin.flush()
    ring = None
    for starter in starters:
        written, _ = starter.communicate(timeout=30)
        ring = ring or Keyring.load(tmp_path, environment={})
        assert ring.decrypt(bytes.fromhex(written.strip()), bound_to=("r", "w")) == "whsec_x"
    assert [path.name for path in tmp_path.iterdir()] == ["secrets.key"]


def test_a_key_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    Keyring.load(tmp_path, environment={})
    (tmp_path / "secrets.key").chmod(0o640)
    with pytest.raises(Refused, match="0600"):
        Keyring.load(tmp_path, environment={})


def test_a_data_folder_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Refused) as refusal:
        Keyring.load(tmp_path / "file", environment={})
    assert refusal.value.category == "secret_unavailable"


@pytest.mark.parametrize(
    "written",
    [
        "a",
        "a:",
        "a:xyz",
        ":" + base64.b64encode(b"x" * 32).decode(),
        "a:" + base64.b64encode(b"x" * 16).decode(),
        "a b:" + base64.b64encode(b"x" * 32).decode(),
        key_list("a", "a"),
        key_list("a") + ",",
    ],
)
def test_keys_that_are_not_keys_are_refused_without_being_shown(written: str) -> None:
    with pytest.raises(Refused) as refusal:
        Keyring.load(Path("/nowhere"), environment={"TENURE_SECRET_KEYS": written})
    assert refusal.value.category == "secret_unavailable"
    assert base64.b64encode(b"x" * 16).decode()[:8] not in str(refusal.value)


def test_a_keyring_shows_nothing_and_stays_in_its_process() -> None:
    ring = Keyring({"visible": os.urandom(32)})
    assert repr(ring) == str(ring) == "Keyring()"
    with pytest.raises(TypeError):
        pickle.dumps(ring)
