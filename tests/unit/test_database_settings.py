"""How the database settings read the environment."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from pydantic import ValidationError

from db.settings import DatabaseSettings


@pytest.fixture(autouse=True)
def _only_what_the_test_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in DatabaseSettings.model_fields:
        monkeypatch.delenv(f"TENURE_{name.upper()}", raising=False)


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg"])
def test_every_spelling_of_the_scheme_comes_to_the_one_driver(monkeypatch: pytest.MonkeyPatch, scheme: str) -> None:
    monkeypatch.setenv("TENURE_DATABASE_URL", f" {scheme}://me:pw@db.example:5433/tenure?sslmode=require")
    assert DatabaseSettings().database_url == "postgresql+psycopg://me:pw@db.example:5433/tenure?sslmode=require"


@pytest.mark.parametrize(
    "url", ["mysql://me:secret@host/db", "postgresql+asyncpg://me:secret@host/db", "me:secret@host"]
)
def test_another_scheme_is_refused_without_telling_the_password(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("TENURE_DATABASE_URL", url)
    with pytest.raises(ValidationError, match="starts with postgresql://") as refused:
        DatabaseSettings()
    assert "secret" not in str(refused.value)


def test_the_settings_do_not_show_their_passwords() -> None:
    settings = DatabaseSettings(database_url="postgres://a:secret@h/d", app_database_url="postgres://b:secret@h/d")
    assert "secret" not in repr(settings)
    assert "secret" not in str(settings)


def test_an_empty_url_means_the_embedded_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENURE_DATABASE_URL", "")
    assert DatabaseSettings().database_url is None


def test_the_data_folder_is_absolute_from_the_beginning(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    settings = DatabaseSettings()
    monkeypatch.chdir("/")
    assert settings.data_dir == tmp_path.resolve() / ".tenure"


@pytest.mark.parametrize(("written", "meant"), [("30", 30), ("0.25", 0.25), ("PT30S", 30), ("00:01:00", 60)])
def test_a_timeout_is_a_number_of_seconds_or_a_duration(
    monkeypatch: pytest.MonkeyPatch, written: str, meant: float
) -> None:
    monkeypatch.setenv("TENURE_STATEMENT_TIMEOUT", written)
    assert DatabaseSettings().statement_timeout == timedelta(seconds=meant)


@pytest.mark.parametrize("written", ["0", "-1", "nan", "inf", "soon", "1e9"])
def test_a_timeout_that_would_be_none_is_refused(monkeypatch: pytest.MonkeyPatch, written: str) -> None:
    monkeypatch.setenv("TENURE_STATEMENT_TIMEOUT", written)
    with pytest.raises(ValidationError):
        DatabaseSettings()
