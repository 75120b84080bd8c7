"""The demo, as `make demo` plays it: the whole stack, an onboarding that succeeds and one that is undone."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from cli.demo.play import run_demo
from tests.database import server_folder


@pytest.mark.prefect
@pytest.mark.timeout(400)
def test_the_demo_ends_as_it_must(monkeypatch: pytest.MonkeyPatch) -> None:
    told = io.StringIO()
    with server_folder() as folder:
        # The mail variables of a login shell and somebody else's database must not matter.
        monkeypatch.setenv("MAIL", "/var/mail/somebody")
        monkeypatch.setenv("TENURE_DATABASE_URL", "postgresql://nobody@127.0.0.1:1/nothing")
        status = run_demo(Path(folder) / "demo", Console(file=told, width=120))
    text = told.getvalue()
    assert status == 0, text
    assert "✗" not in text
    assert "newest first (team, then grant)" in text


def test_a_folder_that_is_not_the_demos_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    told = io.StringIO()
    assert run_demo(tmp_path, Console(file=told, width=120)) == 1
    assert "not a demo's" in told.getvalue()
    assert (tmp_path / "precious").read_text() == "mine"
