"""The pages of docs/ as a reader takes them: lines for the shell, and what the page says comes back.

```sh             is run, one block after the other, in one shell
```json, ```text  right behind it: what came back. `...` stands for anything: within a text, as a value, as all other members of
                  an object, as all other items of an array; as a line of its own, for any lines
```mail           a message that arrives while the page is followed
<!-- meanwhile: an hour passes -->   what the page cannot make happen, before the block that follows

Everything else, blocks of other kinds among it, is for reading only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"

_FENCE = re.compile(r"```(\w*)")
_MEANWHILE = re.compile(r"<!-- meanwhile: (.+) -->")


@dataclass(frozen=True)
class Block:
    """What stands between two fences, or in a comment for the test. `line` is its first."""

    kind: str
    text: str
    line: int


@dataclass(frozen=True)
class Step:
    """Lines for the shell, what happens before they are typed, and what they bring, if the page says so."""

    shell: Block
    meanwhile: tuple[str, ...]
    answer: Block | None


def blocks(text: str) -> Iterator[Block]:
    """The fenced blocks of a page, and its comments for the test, in their order."""
    kind, begun, inside = "", 0, list[str]()
    for number, line in enumerate(text.splitlines(), 1):
        fence, meanwhile = _FENCE.fullmatch(line), _MEANWHILE.fullmatch(line)
        if begun and line == "```":
            yield Block(kind, "\n".join(inside), begun)
            begun, inside = 0, []
        elif begun:
            inside.append(line)
        elif fence:
            kind, begun = fence[1], number + 1
        elif meanwhile:
            yield Block("meanwhile", meanwhile[1], number)
    assert not begun, f"the block of line {begun} has no end"


def steps(text: str) -> list[Step]:
    """What is run of a page. An answer to nothing is a fault of the page."""
    found: list[Step] = []
    meanwhile: list[str] = []
    before = ""
    for block in blocks(text):
        if block.kind == "meanwhile":
            meanwhile.append(block.text)
        elif block.kind == "sh":
            found.append(Step(block, tuple(meanwhile), None))
            meanwhile = []
        elif block.kind in ("json", "text"):
            assert before == "sh", f"line {block.line}: an answer that follows no lines for the shell"
            found[-1] = Step(found[-1].shell, found[-1].meanwhile, block)
        before = block.kind
    return found
