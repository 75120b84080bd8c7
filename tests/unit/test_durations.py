"""Durations: the text an author writes, and the length it names."""

from __future__ import annotations

import copy
import pickle
import re
import time
from datetime import timedelta
from typing import Annotated

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from engine.core.durations import PATTERN, Duration, between, parse

READ = {
    "30s": timedelta(seconds=30),
    "72h": timedelta(hours=72),
    "1h30m": timedelta(hours=1, minutes=30),
    "1h90m": timedelta(hours=2, minutes=30),
    "1h1m1s1ms": timedelta(hours=1, minutes=1, seconds=1, milliseconds=1),
    "1.5h": timedelta(minutes=90),
    "0.001s": timedelta(milliseconds=1),
    "0.3s": timedelta(milliseconds=300),
    "500ms": timedelta(milliseconds=500),
    "5m": timedelta(minutes=5),
    "1h5ms": timedelta(hours=1, milliseconds=5),
    "0s": timedelta(0),
    "007s": timedelta(seconds=7),
}

NOT_DURATIONS = [
    "", "0", "30", "s", "-30s", "+30s", "30 s", " 30s", "30s ", "30s\n", "30S", "30sec", "1d", "1w", "1y", "1mm", "1us", "1ns",
    "1µs", "30m1h", "1h1h", "1s1m", ".5h", "1.h", "1.5.5h", "1.0001s", "1.5ms", "1e3s", "1_000s", "٣s", "３s", "1h30", "PT1H",
    "1:30", "inf", "nan", "infh", "1234567890s", "9" * 100_000 + "h", "1h" * 50_000, "1h\x00", "1h\ud800",
]  # fmt: skip


@pytest.mark.parametrize(("text", "length"), READ.items())
def test_a_duration_is_read(text: str, length: timedelta) -> None:
    assert parse(text) == length


@pytest.mark.parametrize("text", NOT_DURATIONS, ids=lambda text: ascii(text[:12]))
def test_what_is_not_a_duration_is_refused_at_once(text: str) -> None:
    started = time.process_time()
    with pytest.raises(ValueError, match="is not a duration"):
        parse(text)
    assert time.process_time() - started < 0.1


@given(
    st.lists(st.integers(0, 999_999_999), min_size=3, max_size=3).filter(any),
    st.integers(0, 999),
)
def test_every_length_is_exact_to_the_millisecond(numbers: list[int], thousandths: int) -> None:
    hours, minutes, seconds = numbers
    text = f"{hours}h{minutes}m{seconds}.{thousandths:03}s"
    exact = timedelta(hours=hours, minutes=minutes, seconds=seconds, milliseconds=thousandths)
    assert abs(parse(text) - exact) < timedelta(milliseconds=1)
    if hours < 100_000 and minutes < 100_000 and seconds < 100_000:
        assert parse(text) == exact


@given(st.text(alphabet="0123456789.hms-+ \n", max_size=12))
def test_the_pattern_of_the_contract_takes_what_the_parser_takes(text: str) -> None:
    assert (re.search(PATTERN.replace("$", r"\Z"), text) is not None) == _reads(text)


def test_a_duration_keeps_its_text_and_knows_its_length() -> None:
    duration = Duration("1h90m")
    assert duration == "1h90m"
    assert duration.timedelta == timedelta(hours=2.5)
    assert duration.seconds == 9000.0
    assert copy.deepcopy(duration).seconds == 9000.0
    assert pickle.loads(pickle.dumps(duration)).seconds == 9000.0


HOUR_TO_YEAR = TypeAdapter[Duration](Annotated[Duration, between("1h", "8760h", "1s")])


@pytest.mark.parametrize("text", ["1h", "60m", "3600s", "3600000ms", "1h1s", "8760h", "525600m"])
def test_bounds_are_included_whatever_the_units(text: str) -> None:
    duration = HOUR_TO_YEAR.validate_python(text)
    assert isinstance(duration, Duration)
    assert duration == text


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("59m59s", "duration_bounds"),
        ("59m59.999s", "duration_bounds"),
        ("0s", "duration_bounds"),
        ("8760h1s", "duration_bounds"),
        ("999999999h", "duration_bounds"),
        ("1h1ms", "duration_unit"),
        ("1h\n", "duration"),
        (3600, "string_type"),
        (3600.0, "string_type"),
        (timedelta(hours=1), "string_type"),
        (b"1h", "string_type"),
        (None, "string_type"),
    ],
)
def test_what_is_out_of_bounds_is_refused(value: object, kind: str) -> None:
    with pytest.raises(ValidationError) as refusal:
        HOUR_TO_YEAR.validate_python(value)
    assert [error["type"] for error in refusal.value.errors()] == [kind]


def _reads(text: str) -> bool:
    try:
        parse(text)
    except ValueError:
        return False
    return True
