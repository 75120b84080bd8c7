"""What the pages of docs/ say without running it: tables are whole, names are real, links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic_settings import BaseSettings

from api.problems import KINDS
from api.settings import ApiSettings
from db.settings import DatabaseSettings
from engine.core.errors import CATEGORIES
from engine.core.settings import DeliverySettings, MailSettings, WorkerSettings
from tests.answers import difference
from tests.pages import DOCS, Block, steps

PAGES = sorted(DOCS.glob("*.md"))
SETTINGS: tuple[type[BaseSettings], ...] = (
    ApiSettings,
    DatabaseSettings,
    DeliverySettings,
    MailSettings,
    WorkerSettings,
)


def rows(page: str, heading: str) -> list[list[str]]:
    """The rows of the first table under a heading, without the words of its head."""
    under = (DOCS / page).read_text().split(f"## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in under.splitlines() if line.startswith("| ")]
    return [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_every_code_of_a_problem_is_told_with_its_status() -> None:
    told = [(code, int(status)) for code, status, _ in rows("api.md", "Problems")]
    assert sorted(told) == sorted((code, kind.status) for code, kind in KINDS.items())


def test_every_error_category_is_told_once() -> None:
    told = [row[0] for row in rows("reading-a-failed-run.md", "What the categories mean")]
    assert sorted(told) == sorted([*CATEGORIES, "http_<status>"])


def test_every_setting_that_is_named_exists() -> None:
    known = {f"{kind.model_config['env_prefix']}{name.upper()}" for kind in SETTINGS for name in kind.model_fields}
    named = {name for page in PAGES for name in re.findall(r"TENURE_[A-Z_]+", page.read_text())}
    assert named <= known | {"TENURE_SECRET_KEYS"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\((?!https://)([^)#]+)\)", page.read_text())
    assert links
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_every_page_begins_with_the_same_lines_and_is_in_the_index() -> None:
    tasks = [page for page in PAGES if page.name != "README.md"]
    assert len({steps(page.read_text())[0].shell.text for page in tasks}) == 1
    index = (DOCS / "README.md").read_text()
    assert [page.name for page in tasks if f"]({page.name})" not in index] == []


@pytest.mark.parametrize(
    ("kind", "said", "came"),
    [
        ("json", '{"id": "usr_...", ...}', '{"id": "usr_1", "name": "x"}{"id": "usr_2"}'),
        ("json", '{"id": "usr_...", ...}', '{"id": "rol_1", "name": "x"}'),
        ("json", '{"id": "usr_..."}', '{"id": "usr_1", "name": "x"}'),
        ("json", '{"id": ..., "name": "x"}', '{"id": 3}'),
        ("json", '{"items": [1]}', '{"items": [1, 2]}'),
        ("json", '{"items": [1, 2, ...]}', '{"items": [1]}'),
        ("json", '{"changed": 1}', '{"changed": true}'),
        ("json", '{"a": {"b": [{"c": "d", ...}]}}', '{"a": {"b": [{"c": "e"}]}}'),
        ("json", "{...}", "curl: (7) Failed to connect"),
        ("text", "ends here", "ends here, or not"),
        ("text", "one\n...\nthree", "one\ntwo"),
    ],
)
def test_another_answer_is_told_apart(kind: str, said: str, came: str) -> None:
    assert difference(Block(kind, said, 1), came) is not None


@pytest.mark.parametrize(
    ("kind", "said", "came"),
    [
        ("json", '{"id": "usr_...", ...}\n{...}', '{"id": "usr_1", "name": "x"}{"of": [1]}'),
        ("json", '{"id": ..., "items": [1, ...]}', '{"id": null, "items": [1, 2]}'),
        ("json", '{"text": "wait ... [a, b]"}', '{"text": "wait for [a, b]"}'),
        ("text", "one\n...\nfour", "one  \n two\nthree\n\nfour\n"),
        ("text", "one ... three", "one two three"),
    ],
)
def test_an_answer_is_known_again(kind: str, said: str, came: str) -> None:
    assert difference(Block(kind, said, 1), came) is None


def test_what_comes_back_must_be_told() -> None:
    assert difference(None, "something") is not None
    assert difference(None, "\n") is None
