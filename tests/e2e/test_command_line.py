"""The command line on a database of its own: what an operator types first."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from engine.core.settings import EngineSettings
from tests.database import server_folder


def tenure(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from cli.main import main; main()", *arguments, "--data-dir", str(folder)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_a_realm_is_made_and_its_administrator_gets_a_token() -> None:
    with server_folder() as own:
        folder = Path(own) / "data"
        early = tenure(folder, "realm", "create", "acme", "--admin-email", "root@acme.example")
        assert early.returncode == 1
        assert "tenure db status" in early.stderr
        assert "Traceback" not in early.stderr
        assert tenure(folder, "db", "upgrade").stdout == "applied 0001, 0002\n"
        assert tenure(folder, "db", "status").returncode == 0
        made = tenure(folder, "realm", "create", "acme", "--admin-email", "root@acme.example")
        assert made.returncode == 0, made.stderr
        ids = [line.split()[1] for line in made.stdout.splitlines()[:2]]
        again = tenure(folder, "realm", "create", "acme", "--admin-email", "root@acme.example")
        assert again.stderr == "a realm named acme exists already\n"
        wrong = tenure(folder, "realm", "create", "other", "--admin-email", "nowhere")
        assert wrong.stderr == "the admin email is not a mail address\n"
        token = tenure(folder, "token", *ids)
        assert token.stdout.count(".") == 2
        assert not (folder / "postgres" / "data" / "postmaster.pid").exists(), "the command has left its server running"


def test_a_setting_out_of_bounds_is_told_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TENURE_BATCH_SIZE", "60")
    told = tenure(tmp_path, "up")
    assert told.returncode == 1
    assert "batch_size" in told.stdout


def test_the_variables_of_a_login_shell_are_not_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MAIL", "WORKERS", "DELIVERY"):
        monkeypatch.setenv(name, "/var/mail/root")
    monkeypatch.setenv("TENURE_SMTP_PORT", "")
    assert EngineSettings().workers.batch_size == 50
