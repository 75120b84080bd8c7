"""The window of failures: it moves, it counts exactly, and it does not grow without end."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest
from starlette.datastructures import Address

from api.limits import MAX_KEYS, Window, place_of


@dataclass
class Clock:
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_the_window_moves(clock: Clock) -> None:
    window = Window(3, clock)
    for seconds in (0, 20, 20):
        clock.now += seconds
        assert window.wait("ada") == 0
        assert window.failed("ada") == 0
    assert window.wait("ada") == window.failed("ada") == 20, "the first of them is 40 seconds old"
    clock.now += 19.5
    assert window.failed("ada") == 1
    clock.now += 0.5
    assert window.failed("ada") == 0
    assert window.failed("ada") == 20


def test_who_is_held_up_is_not_held_up_longer_for_trying(clock: Clock) -> None:
    window = Window(1, clock)
    assert window.failed("ada") == 0
    for _ in range(59):
        clock.now += 1
        assert window.failed("ada") > 0
    clock.now += 1
    assert window.failed("ada") == 0


def test_each_caller_has_a_window_of_their_own(clock: Clock) -> None:
    window = Window(1, clock)
    assert window.failed("ada") == 0
    assert window.failed("bob") == 0
    assert window.failed("ada") == 60


def test_a_window_of_none_holds_nobody_up_and_remembers_nobody(clock: Clock) -> None:
    window = Window(0, clock)
    assert [window.failed("ada") for _ in range(100)] == [0] * 100
    assert window.wait("ada") == 0
    assert len(window) == 0


def test_however_many_come_it_does_not_grow_without_end(clock: Clock) -> None:
    window = Window(2, clock)
    for number in range(3 * MAX_KEYS):
        window.failed(str(number))
    assert len(window) == MAX_KEYS
    assert window.failed(str(3 * MAX_KEYS - 1)) == 0
    assert window.failed(str(3 * MAX_KEYS - 1)) == 60, "those who came last are remembered"


def test_what_is_over_is_forgotten(clock: Clock) -> None:
    window = Window(2, clock)
    for number in range(100):
        window.failed(str(number))
    clock.now += 30
    window.failed("7")
    clock.now += 30
    window.failed("new")
    assert len(window) == 2, "7, for its second failure, and the new one"


def test_many_threads_get_exactly_as_many_failures_as_there_may_be() -> None:
    window = Window(500)
    with ThreadPoolExecutor(8) as threads:
        waits = list(threads.map(lambda _: window.failed("ada"), range(4000)))
    assert waits.count(0) == 500


@pytest.mark.parametrize(
    ("host", "place"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("", "unknown"),
        ("a name", "unknown"),
        ("x" * 100_000, "unknown"),
        ("192.0.2.7\n", "unknown"),
    ],
)
def test_a_place_is_an_address(host: str, place: str) -> None:
    assert place_of(Address(host, 0)) == place


def test_a_place_of_many_addresses_is_their_network() -> None:
    here = place_of(Address("2001:db8:1:2::1", 0))
    assert place_of(Address("2001:db8:1:2:f:f:f:f", 0)) == here
    assert place_of(Address("2001:db8:1:3::1", 0)) != here
    assert place_of(None) == "unknown"
