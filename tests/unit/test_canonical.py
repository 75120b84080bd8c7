"""JSON from outside read strictly, and written in the one form that is hashed."""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core.canonical import MAX_DEPTH, MAX_NUMBER, canonical_bytes, check_json, load, path_to, sha256_hex
from engine.core.errors import Refused

SOUND_TEXT = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]))
SOUND = st.recursive(
    st.none() | st.booleans() | st.integers(-MAX_NUMBER, MAX_NUMBER) | SOUND_TEXT
    | st.floats(-MAX_NUMBER, MAX_NUMBER),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(SOUND_TEXT, inner, max_size=4),
    max_leaves=20,
)  # fmt: skip


def refusal(raw: bytes, limit: int = 65536) -> Refused:
    with pytest.raises(Refused) as refused:
        load(raw, limit)
    assert refused.value.category == "validation_failed"
    return refused.value


def nested(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


@given(SOUND)
def test_what_passes_the_check_is_written_and_read_back_the_same(value: Any) -> None:
    check_json(value)
    written = canonical_bytes(value)
    read = load(written, len(written))
    assert canonical_bytes(read) == written
    assert read == value


def test_the_canonical_form_sorts_members_by_utf_16_and_has_one_way_to_write_a_number() -> None:
    value = {"€": 1, "\r": 1.0, "\ufb33": 1e3, "1": 1e-7, "\U0001f600": -0.0, "\u00f6": "€\n"}
    written = '{"\\r":1,"1":1e-7,"\u00f6":"€\\n","€":1,"\U0001f600":0,"\ufb33":1000}'
    assert canonical_bytes(value) == written.encode()


def test_the_order_in_which_members_came_does_not_change_the_hash() -> None:
    one, other = load(b'{"a": 1, "b": [1.0, 2]}', 99), load(b'{ "b": [1, 2e0], "a": 1 }', 99)
    assert sha256_hex(canonical_bytes(one)) == sha256_hex(canonical_bytes(other))
    assert sha256_hex(b"abc") == hashlib.sha256(b"abc").hexdigest()


@pytest.mark.parametrize("value", [{1: 2}, {"a": {1, 2}}, "\ud800", float("nan"), 2**60, object()])
def test_what_has_no_canonical_form_is_refused(value: object) -> None:
    with pytest.raises(Refused):
        canonical_bytes(value)


@pytest.mark.parametrize(
    ("raw", "path"),
    [
        (rb'{"a": {"b": ["\u0000"]}}', "a.b[0]"),
        (rb'{"a": ["x", "\ud800"]}', "a[1]"),
        (rb'{"a": "\udc00\ud800"}', "a"),
        (rb'{"a": {"\u0000": 1}}', "a"),
        (rb'{"a": {"\ud800": 1}}', "a"),
        (b'{"a": NaN}', "a"),
        (b'{"a": [0, -Infinity]}', "a[1]"),
        (b'{"a": 1e400}', "a"),
        (b'{"a": -1e400}', "a"),
        (b'{"a": 9007199254740992.0}', "a"),
        (b'{"a": 1e16}', "a"),
        (b'{"a": 9007199254740992}', "a"),
        (b'{"a": -9007199254740992}', "a"),
        (b'{"a": ' + b"9" * 400 + b"}", "a"),
        (b'{"a": ' + b"9" * 60_000 + b"}", "a"),
        (b'{"a": {"b": 1, "b": 1}}', "a"),
        (rb'{"a": 1, "\u0061": 2}', None),
        (b"1e400", None),
    ],
)
def test_a_value_that_could_not_be_stored_is_refused_with_its_path(raw: bytes, path: str | None) -> None:
    assert refusal(raw).path == path


@pytest.mark.parametrize(
    "raw",
    [b"9007199254740991", b"-9007199254740991", b"9007199254740991.0", b"1e-300", b"-0", rb'"\ud83d\ude00"', b"null"],
)
def test_the_last_value_that_can_be_stored_is_taken(raw: bytes) -> None:
    assert load(raw, 99) == json.loads(raw)


@pytest.mark.parametrize(
    "raw",
    [
        b"", b" ", b"{", b"[1,]", b"{'a':1}", b"01", b"1 2", b"nul", b'"', b'"a', b'"\\', b"]" * 40 + b"[" * 40, b"[}", b'"\n"',
        b"\xff", b'"\xc3"', b'"\xed\xa0\x80"', b"\xef\xbb\xbf1", "1".encode("utf-16"), "1".encode("utf-32"), b"\x00", b"1_000",
        b'{"a":1}x', b"//", b"[1]\x00",
    ],
)  # fmt: skip
def test_what_is_not_json_in_utf_8_is_refused(raw: bytes) -> None:
    refusal(raw)


def test_nesting_ends_at_its_bound_and_not_in_a_recursion_error() -> None:
    assert load(nested(MAX_DEPTH), 99) is not None
    refusal(nested(MAX_DEPTH + 1))
    refusal(nested(900))
    refusal(b"[" * 60_000)
    refusal(b'{"a":' * 10_000)
    assert load(b'"' + b"[" * 1000 + b'"', 9999) == "[" * 1000, "brackets in a string do not nest"


def test_a_python_value_nested_too_deep_is_refused_with_the_way_to_it() -> None:
    value: object = 1
    for _ in range(MAX_DEPTH):
        value = [value]
    check_json(value)
    by_name: object = 1
    for _ in range(MAX_DEPTH):
        by_name = {"a": by_name}
    check_json(by_name)
    with pytest.raises(Refused):
        check_json({"a": by_name})
    with pytest.raises(Refused) as refused:
        check_json({"a": value}, "definition")
    assert refused.value.path == "definition.a" + "[0]" * (MAX_DEPTH - 1)
    endless: list[object] = []
    endless.append(endless)
    with pytest.raises(Refused):
        check_json(endless)


def test_a_body_is_read_up_to_its_limit() -> None:
    assert load(b'"12345678"', 10) == "12345678"
    refusal(b'"123456789"', 10)


def test_a_hostile_body_takes_no_longer_than_a_plain_one() -> None:
    for raw in (
        b'"\\' * 30_000,
        b'"' * 65_000,
        b'"' + b'\\"' * 32_000,
        b"[" * 65_000,
        b"1" * 65_000,
        b"0." + b"1" * 65_000,
    ):
        started = time.process_time()
        with contextlib.suppress(Refused):
            load(raw, 65536)
        assert time.process_time() - started < 0.25


def test_a_refusal_repeats_nothing_of_what_was_sent() -> None:
    refused = refusal(b'{"a": {"s3cret thing\\n": ["s3cret\\u0000"]}}')
    assert "s3cret" not in f"{refused} {refused.path}"
    assert refused.path == "a[?][0]"
    assert path_to("a", ["b-c", 1, "x" * 65, "d"]) == "a.b-c[1][?].d"
