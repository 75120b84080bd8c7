"""JSON from outside, read strictly, and JSON to hash, written in the one form of RFC 8785 (lifecycle.md, decision 6).

What passes here can be stored as jsonb, read again and hashed with the same result: no NUL, no lone surrogate, no
number that a double cannot hold, no member twice, no nesting without end. Every refusal is `Refused("validation_failed")` with
the path of the value at fault; no message repeats what was sent.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

import rfc8785

from engine.core.errors import Refused

MAX_DEPTH = 32
"""Arrays and objects within each other, the outermost included."""

MAX_NUMBER = 2**53 - 1
"""Beyond it, whole numbers are not exact for every reader of JSON (RFC 8785, appendix D)."""

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}", re.ASCII)
_STRING_OR_BRACKET = re.compile(r'"(?:[^"\\]|\\.)*+"?|[\[\]{}]', re.DOTALL)
"""The closing quote is optional, so that a string without end is read once and not once for every quote in it."""


def canonical_bytes(value: object) -> bytes:
    """The RFC 8785 form of `value`. Raises Refused for what that form cannot hold."""
    try:
        return rfc8785.dumps(value)  # type: ignore[arg-type]  # it checks every type itself
    except (ValueError, RecursionError):
        raise Refused("validation_failed", "the value has no canonical JSON form") from None


def sha256_hex(content: bytes) -> str:
    """The SHA-256 of `content`, in 64 lowercase hex digits."""
    return hashlib.sha256(content).hexdigest()


def path_to(path: str, way: Iterable[int | str]) -> str:
    """`path` and a way on from there: `definition.steps[1].id`. A name that is not plain came from outside, and is not
    repeated."""
    for part in way:
        if isinstance(part, int):
            path = f"{path}[{part}]"
        elif _PLAIN_NAME.fullmatch(part) is None:
            path = f"{path}[?]"
        else:
            path = f"{path}.{part}" if path else part
    return path


def check_json(value: object, path: str = "") -> None:
    """Refuse what is not JSON that can be stored and hashed. `path` names `value` itself."""
    if unfit := _unfit(value, 0):
        rule, way = unfit
        _refuse(path_to(path, way), rule)


def load(raw: bytes, limit: int, path: str = "") -> Any:
    """The value that `raw` holds, at most `limit` bytes of UTF-8 without a byte order mark. Raises Refused."""
    if len(raw) > limit:
        _refuse(path, f"must be at most {limit} bytes")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        _refuse(path, "must be UTF-8")
    _check_depth(text, path)
    try:
        value = json.loads(text, object_pairs_hook=_object, parse_int=_integer)
    except ValueError:
        _refuse(path, "must be JSON")
    check_json(value, path)
    return value


class _Doubled(dict[str, Any]):
    """An object that had a member twice: kept until the walk over the value comes by and knows its path."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    return members if len(members) == len(pairs) else _Doubled(members)


def _integer(digits: str) -> int:
    """Any number too large stands for all of them: digits without end are not worth the time to read."""
    return int(digits) if len(digits) <= 17 else MAX_NUMBER + 1


def _check_depth(text: str, path: str) -> None:
    """Count brackets before the parser does, for it would answer nesting without end with a RecursionError."""
    depth = 0
    for match in _STRING_OR_BRACKET.finditer(text):
        match match.group():
            case "[" | "{":
                depth += 1
                if depth > MAX_DEPTH:
                    _refuse(path, f"must not nest deeper than {MAX_DEPTH}")
            case "]" | "}":
                depth -= 1


_Unfit = tuple[str, tuple[int | str, ...]]
"""A rule that is broken, and the way from a value to the one that breaks it: told outwards, so that a sound value costs
no paths."""


def _unfit(value: object, depth: int) -> _Unfit | None:
    if isinstance(value, str):
        sound = (value.isascii() and "\x00" not in value) or _UNSTORABLE.search(value) is None
        return None if sound else ("must not hold NUL or half of a surrogate pair", ())
    if isinstance(value, dict):
        return _unfit_object(value, depth)
    if isinstance(value, list | tuple):
        return _unfit_array(value, depth)
    if value is None or isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        # NaN is on no side of anything. A larger float is a whole number, and the canonical form writes it as one.
        sound = -MAX_NUMBER <= value <= MAX_NUMBER
        return None if sound else (f"must be a number between -{MAX_NUMBER} and {MAX_NUMBER}", ())
    return "must be JSON", ()


def _unfit_object(value: dict[object, object], depth: int) -> _Unfit | None:
    if depth >= MAX_DEPTH:
        return _TOO_DEEP
    if isinstance(value, _Doubled):
        return "must not have a member twice", ()
    for name, member in value.items():
        if not isinstance(name, str) or _UNSTORABLE.search(name):
            return "must have plain text as the names of its members", ()
        if unfit := _unfit(member, depth + 1):
            return unfit[0], (name, *unfit[1])
    return None


def _unfit_array(value: Sequence[object], depth: int) -> _Unfit | None:
    if depth >= MAX_DEPTH:
        return _TOO_DEEP
    for index, item in enumerate(value):
        if unfit := _unfit(item, depth + 1):
            return unfit[0], (index, *unfit[1])
    return None


_TOO_DEEP: _Unfit = (f"must not nest deeper than {MAX_DEPTH}", ())


def _refuse(path: str, rule: str) -> NoReturn:
    raise Refused("validation_failed", rule, path or None) from None
