"""What the documents say of the code is so."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from engine.core.failpoints import NAMES
from engine.lifecycle.states import RUN

ROOT = Path(__file__).resolve().parents[2]


def tracked(*patterns: str) -> list[Path]:
    """The files of the project that match, as git has them."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", *patterns],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    return [ROOT / name for name in listed if (ROOT / name).is_file()]


def test_the_picture_of_a_runs_states_is_drawn_from_the_table() -> None:
    assert RUN.diagram() in (ROOT / "ARCHITECTURE.md").read_text()


def test_every_setting_that_the_readme_names_is_read_somewhere() -> None:
    code = "\n".join(path.read_text() for path in tracked("*.py"))
    named = set(re.findall(r"`TENURE_([A-Z_]+)`", (ROOT / "README.md").read_text()))
    assert named
    for name in named:
        assert f"TENURE_{name}" in code or re.search(rf"\b{name.lower().removeprefix('smtp_')}: ", code), name


def test_every_failpoint_is_passed_somewhere() -> None:
    code = "\n".join(path.read_text() for path in tracked("engine/*.py"))
    for name in NAMES:
        assert f'hit("{name}"' in code, name


def test_the_sources_product_name_stands_only_in_the_wire_contract() -> None:
    name = re.compile("proud" + "auth", re.IGNORECASE)
    allowed = {"ProudAuth-Workflows/1"}
    for path in tracked():
        if path.suffix in (".py", ".md", ".json", ".yaml", ".toml", ".sql", "") and path.name != "uv.lock":
            rest = path.read_text(errors="ignore")
            for word in allowed:
                rest = rest.replace(word, "")
            assert not name.search(rest), path


@pytest.mark.parametrize(
    "room",
    [
        *("db", "db/tables", "db/statements", "api", "api/document", "flows", "tasks"),
        *("engine/core", "engine/directory", "engine/egress", "engine/outbox"),
        *("engine/lifecycle", "engine/lifecycle/steps", "engine/lifecycle/selectors"),
    ],
)
def test_a_rooms_first_lines_are_its_table_of_contents(room: str) -> None:
    contents = (ROOT / room / "__init__.py").read_text()
    for module in (ROOT / room).glob("*.py"):
        if module.stem not in ("__init__",):
            assert re.search(rf"^ *{module.stem}\b", contents, re.MULTILINE), (
                f"{room}/__init__.py does not tell of {module.stem}"
            )
