"""The pages of docs/, followed by somebody new: every line works, and what the page says comes back is what comes back."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from pytest_httpserver import HTTPServer

from api.issuer import LocalIssuer
from db.session import Database
from tests.answers import difference
from tests.database import plain
from tests.driver import until
from tests.meanwhile import set_aside, time_passes
from tests.newcomer import Newcomer, a_newcomer, arrived
from tests.pages import DOCS, blocks, steps

PAGES = sorted(path.name for path in DOCS.glob("*.md"))

MEANWHILE = {
    "a day passes": time_passes(days=1),
    "a week passes": time_passes(weeks=1),
    "Bob's joining is set aside": set_aside("organization.membership.added"),
    "ninety-one days pass": time_passes(days=91),
}
"""What pages let happen between two blocks."""

needs_a_shell = pytest.mark.skipif(not (shutil.which("bash") and shutil.which("curl")), reason="needs bash and curl")


@pytest.fixture(scope="module")
def newcomer(module_database: Database, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Newcomer]:
    folder = tmp_path_factory.mktemp("data")
    with pytest.MonkeyPatch.context() as environment, HTTPServer() as server:
        environment.setenv("TENURE_DATA_DIR", str(folder))
        environment.setenv("TENURE_DATABASE_URL", plain(module_database.owner_url))
        environment.setenv("TENURE_APP_DATABASE_URL", plain(module_database.app_url))
        environment.setattr("tests.calling.ISSUER", LocalIssuer.load(folder))
        with a_newcomer(module_database, server, MEANWHILE) as newcomer:
            yield newcomer


@needs_a_shell
@pytest.mark.parametrize("name", PAGES)
def test_a_page_says_what_comes_back(newcomer: Newcomer, name: str) -> None:
    text = (DOCS / name).read_text()
    followed = steps(text)
    brought, status = newcomer.follow(followed)
    for step in followed:
        came = brought.get(step.shell.line)
        where = f"docs/{name}, line {step.shell.line}"
        assert came is not None, f"{where}: not reached"
        is_last = step.shell.line == max(brought)
        assert not (status and is_last), f"{where}: ended with status {status}\n{came}"
        why = difference(step.answer, came)
        assert why is None, f"{where}: {why}\n{came}"
    for block in blocks(text):
        if block.kind == "mail":
            until(lambda block=block: any(difference(block, mail.text) is None for mail in arrived(newcomer.mail)))
