"""Whether what came back is what a page says (tests/pages.py). `...` on the page stands for anything."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from tests.pages import Block


def difference(answer: Block | None, came: str) -> str | None:
    """Why what came back is not what the page says; None if it is. Lines that bring something must be answered."""
    if answer is None:
        return "the page does not say what comes back" if came.strip() else None
    if answer.kind != "json":
        return None if _as_pattern(answer.text).fullmatch(_squeezed(came)) else "it is another text"
    try:
        said, given = list(_values(_readable(answer.text))), list(_values(came))
    except ValueError:
        return "it is not JSON"
    if len(said) != len(given):
        return f"these are {len(given)} answers, not {len(said)}"
    return next((why for one, other in zip(said, given, strict=True) if (why := _unlike(one, other, "answer"))), None)


def _unlike(said: object, given: object, path: str) -> str | None:
    match said, given:
        case "...", _:
            return None
        case str(), str():
            return None if _as_pattern(said).fullmatch(given) else f"{path} is {given!r}"
        case dict(), dict():
            rest = "..." in said
            said = {name: value for name, value in said.items() if name != "..."}
            if missing := said.keys() - given.keys():
                return f"{path} has no {', '.join(sorted(missing))}"
            if not rest and (more := given.keys() - said.keys()):
                return f"{path} has {', '.join(sorted(more))} as well"
            return _first(_unlike(value, given[name], f"{path}.{name}") for name, value in said.items())
        case list(), list():
            rest = said[-1:] == ["..."]
            said = said[:-1] if rest else said
            if len(given) < len(said) or (len(given) > len(said) and not rest):
                return f"{path} has {len(given)} items"
            return _first(_unlike(one, given[index], f"{path}[{index}]") for index, one in enumerate(said))
        case _:
            return None if type(said) is type(given) and said == given else f"{path} is {given!r}"


def _first(reasons: Iterator[str | None]) -> str | None:
    return next((reason for reason in reasons if reason), None)


def _values(text: str) -> Iterator[object]:
    """One JSON value after the other."""
    decoder, text = json.JSONDecoder(), text.strip()
    while text:
        value, end = decoder.raw_decode(text)
        yield value
        text = text[end:].lstrip()


def _readable(text: str) -> str:
    """The page's JSON as JSON: a bare `...` becomes a value, or a member."""
    pieces = re.split(r'("(?:[^"\\]|\\.)*")', text)
    out, inside = "", list[str]()
    for piece in pieces:
        if piece.startswith('"'):
            out += piece
            continue
        for token in re.split(r"(\.\.\.|[{}\[\]])", piece):
            if token in ("{", "["):
                inside.append(token)
            elif token in ("}", "]"):
                inside.pop()
            is_member = token == "..." and inside[-1:] == ["{"] and not out.rstrip().endswith(":")
            out += {"...": '"...": 0' if is_member else '"..."'}.get(token, token)
    return out


def _squeezed(text: str) -> str:
    """Without what only lays it out: runs of blanks, blank lines."""
    lines = (" ".join(line.split()) for line in text.splitlines())
    return "\n".join(line for line in lines if line)


def _as_pattern(text: str) -> re.Pattern[str]:
    lines = [
        r"(?:.*\n)*?.*" if line == "..." else "[^\n]*".join(map(re.escape, line.split("...")))
        for line in _squeezed(text).splitlines()
    ]
    return re.compile("\n".join(lines))
