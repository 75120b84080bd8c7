"""A provider's keys over time: rotation, strangers, and a provider that is slow or away. A real server; the clock is told."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from api.oidc import Provider
from api.rotation import SEATS, RotatingKeys
from api.tokens import VerifyingKey
from engine.core.errors import Unavailable
from engine.egress.deadline import Deadline
from tests.forging import SigningKey
from tests.identity_provider import KEYS, Clock, IdentityProvider, an_identity_provider, says, says_when_told

MAX_AGE, LONGEST, COOL_DOWN = 300, 3600, 30

A, B, C = (SigningKey.new("ES256") for _ in range(3))


@pytest.fixture
def provider() -> Iterator[IdentityProvider]:
    with an_identity_provider() as provider:
        provider.keys = [A]
        yield provider


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def keys(provider: IdentityProvider, clock: Clock) -> RotatingKeys:
    return rotating(provider, clock)


def rotating(provider: IdentityProvider, clock: Clock, timeout: float = 10) -> RotatingKeys:
    fetch = Provider(provider.issuer).keys
    return RotatingKeys(fetch, max_age=MAX_AGE, longest=LONGEST, cool_down=COOL_DOWN, timeout=timeout, clock=clock)


def counts(keys: RotatingKeys, key: SigningKey) -> bool:
    return keys.find(key.id) is not None


def nobody_waits(keys: RotatingKeys, clock: Clock, seconds: float) -> None:
    """When so much time has passed, A goes on counting at once, though a fetch is under way that has much time left."""
    clock.advance(seconds)
    for _ in range(50):
        assert counts(keys, A)
    errand = keys._errand
    assert errand is not None
    assert not errand.deadline.is_over


def settle(keys: RotatingKeys) -> None:
    """Let a fetch that goes on behind our backs come to its end."""
    errand = keys._errand
    assert errand is None or errand.done.wait(30)


# Rotation


def test_nothing_is_fetched_before_it_is_needed_and_then_once(keys: RotatingKeys, provider: IdentityProvider) -> None:
    assert provider.asked == []
    assert counts(keys, A)
    assert counts(keys, A)
    assert provider.fetches == 1


def test_all_who_come_at_the_start_wait_for_one_fetch(keys: RotatingKeys, provider: IdentityProvider) -> None:
    go = threading.Event()
    provider.instead[KEYS] = says_when_told(go, says(200, {"keys": [A.jwk()]}))
    with ThreadPoolExecutor(40) as pool:
        found = [pool.submit(counts, keys, A) for _ in range(40)]
        go.set()
        assert all(each.result() for each in found)
    assert provider.fetches == 1


def test_a_new_key_counts_at_once(keys: RotatingKeys, provider: IdentityProvider) -> None:
    assert counts(keys, A)
    provider.keys = [A, B]
    assert counts(keys, B)
    assert provider.fetches == 2


def test_a_withdrawn_key_counts_no_longer_than_the_keys_age(
    keys: RotatingKeys, provider: IdentityProvider, clock: Clock
) -> None:
    assert counts(keys, A)
    provider.keys = [B]
    clock.advance(MAX_AGE / 2 - 1)
    assert counts(keys, A)
    assert provider.fetches == 1
    clock.advance(MAX_AGE / 2 + 1)
    assert not counts(keys, A)
    assert counts(keys, B)
    assert provider.fetches == 2, "the withdrawn key has become a stranger, whose cool-down is for the next to wait for"


def test_all_who_come_with_a_withdrawn_key_are_refused(
    keys: RotatingKeys, provider: IdentityProvider, clock: Clock
) -> None:
    assert counts(keys, A)
    provider.keys = [B]
    clock.advance(MAX_AGE)
    with ThreadPoolExecutor(40) as pool:
        assert not any(pool.map(lambda _: counts(keys, A), range(40)))


def test_a_withdrawn_key_is_not_let_pass_because_the_provider_takes_its_time(
    provider: IdentityProvider, clock: Clock
) -> None:
    keys = rotating(provider, clock, timeout=30)
    assert counts(keys, A)
    go = threading.Event()
    provider.instead[KEYS] = says_when_told(go, says(200, {"keys": [B.jwk()]}))
    clock.advance(LONGEST - 1)
    with ThreadPoolExecutor(5) as pool:
        found = [pool.submit(counts, keys, A) for _ in range(5)]
        for each in found:
            with suppress(TimeoutError):
                each.result(0.3)
        go.set()
        assert not any(each.result() for each in found)
    assert provider.fetches == 2


def test_keys_in_use_are_fetched_anew_before_anybody_has_to_wait(provider: IdentityProvider, clock: Clock) -> None:
    keys = rotating(provider, clock, timeout=30)
    assert counts(keys, A)
    go = threading.Event()
    provider.instead[KEYS] = says_when_told(go, says(200, {"keys": [B.jwk()]}))
    nobody_waits(keys, clock, MAX_AGE / 2)
    go.set()
    settle(keys)
    assert counts(keys, B)
    assert provider.fetches == 2
    assert not counts(keys, A)


def test_the_provider_may_move_its_keys(keys: RotatingKeys, provider: IdentityProvider, clock: Clock) -> None:
    assert counts(keys, A)
    provider.description = {"jwks_uri": f"{provider.issuer}/moved"}
    provider.instead = {KEYS: says(410), "/moved": says(200, {"keys": [B.jwk()]})}
    clock.advance(MAX_AGE)
    assert not counts(keys, A)
    assert counts(keys, B)


# Strangers


def test_strange_keys_have_the_provider_asked_once_in_a_cool_down(
    keys: RotatingKeys, provider: IdentityProvider, clock: Clock
) -> None:
    assert counts(keys, A)
    for moment in range(4):
        for number in range(25):
            assert keys.find(f"strange-{moment}-{number}") is None
        assert provider.fetches == 2 + moment
        clock.advance(COOL_DOWN)
    provider.keys = [A, B]
    assert counts(keys, B), "the cool-down is over"
    provider.keys = [A, B, C]
    clock.advance(COOL_DOWN - 1)
    assert not counts(keys, C), "it is not"
    clock.advance(1)
    assert counts(keys, C)


def test_strange_keys_of_many_threads_cause_one_fetch_and_few_wait_for_it(
    keys: RotatingKeys, provider: IdentityProvider
) -> None:
    assert counts(keys, A)
    go = threading.Event()
    provider.instead[KEYS] = says_when_told(go, says(200, {"keys": [A.jwk()]}))
    ended = threading.Semaphore(0)

    def strange(number: int) -> VerifyingKey | None:
        try:
            return keys.find(f"strange-{number}")
        finally:
            ended.release()

    with ThreadPoolExecutor(64) as pool:
        found = [pool.submit(strange, number) for number in range(64)]
        for _ in range(64 - SEATS):
            assert ended.acquire(timeout=30), "more than a few wait"
        assert counts(keys, A), "nobody with a known key does"
        assert not ended.acquire(blocking=False)
        go.set()
        assert all(each.result() is None for each in found)
    assert provider.fetches == 2


# Away


def test_keys_count_on_while_the_provider_is_away_but_not_for_ever(
    keys: RotatingKeys, provider: IdentityProvider, clock: Clock
) -> None:
    assert counts(keys, A)
    provider.instead[KEYS] = provider.hangs_up
    for _ in range(LONGEST // 60 - 1):
        clock.advance(60)
        assert counts(keys, A)
        settle(keys)
    clock.advance(60)
    for key in (A, B):
        with pytest.raises(Unavailable):
            keys.find(key.id)
    provider.instead.clear()
    clock.advance(COOL_DOWN)
    assert counts(keys, A), "it has come back"


def test_a_provider_that_is_away_is_asked_once_in_a_cool_down(
    keys: RotatingKeys, provider: IdentityProvider, clock: Clock
) -> None:
    provider.instead[KEYS] = provider.hangs_up
    for attempt in range(1, 4):
        for number in range(20):
            with pytest.raises(Unavailable):
                keys.find(f"key-{number}")
        assert provider.fetches == attempt
        clock.advance(COOL_DOWN)


def test_whether_a_strange_key_counts_cannot_be_told_while_the_provider_is_away(
    keys: RotatingKeys, provider: IdentityProvider, clock: Clock
) -> None:
    assert counts(keys, A)
    provider.instead[KEYS] = provider.hangs_up
    for _ in range(3):
        with pytest.raises(Unavailable):
            keys.find(B.id)
        assert counts(keys, A)
    assert provider.fetches == 2
    provider.instead.clear()
    clock.advance(COOL_DOWN)
    assert not counts(keys, B)


def test_a_slow_provider_is_away_when_its_time_is_up(provider: IdentityProvider, clock: Clock) -> None:
    keys = rotating(provider, clock, timeout=0.2)
    provider.instead[KEYS] = provider.drips
    with pytest.raises(Unavailable):
        keys.find(A.id)
    provider.instead.clear()
    with pytest.raises(Unavailable):
        keys.find(A.id)
    clock.advance(COOL_DOWN)
    assert counts(keys, A)


def test_a_slow_provider_holds_up_nobody_whose_key_is_known_and_young(provider: IdentityProvider, clock: Clock) -> None:
    keys = rotating(provider, clock, timeout=30)
    assert counts(keys, A)
    provider.instead[KEYS] = provider.drips

    def come_with_a_strange_key() -> None:
        with pytest.raises(Unavailable):
            keys.find("strange")

    stranger = threading.Thread(target=come_with_a_strange_key)
    stranger.start()
    deadline = time.monotonic() + 20
    while provider.fetches < 2:
        assert time.monotonic() < deadline, "nobody asks the provider"
        time.sleep(0.01)
    for age in (0, MAX_AGE / 2):
        clock.advance(age)
        for _ in range(50):
            assert counts(keys, A)
    assert stranger.is_alive(), "all that while one fetch was under way"
    assert provider.fetches == 2
    provider.closing.set()
    stranger.join()


def test_a_provider_known_to_be_slow_is_not_waited_for_again(provider: IdentityProvider, clock: Clock) -> None:
    keys = rotating(provider, clock, timeout=30)
    assert counts(keys, A)
    provider.instead[KEYS] = provider.hangs_up
    clock.advance(MAX_AGE)
    assert counts(keys, A)
    settle(keys)
    provider.instead[KEYS] = provider.drips
    nobody_waits(keys, clock, COOL_DOWN)


def test_whatever_goes_wrong_in_a_fetch_is_no_end_to_fetching(clock: Clock) -> None:
    failures: list[Exception] = [ValueError("secret"), RuntimeError("secret"), RecursionError()]

    def fetch(_deadline: Deadline) -> dict[str, VerifyingKey]:
        if failures:
            raise failures.pop()
        return {A.id: VerifyingKey(A.private.public_key(), A.algorithm)}

    keys = RotatingKeys(fetch, max_age=MAX_AGE, longest=LONGEST, cool_down=COOL_DOWN, timeout=5, clock=clock)
    while failures:
        with pytest.raises(Unavailable):
            keys.find(A.id)
        clock.advance(COOL_DOWN)
    assert counts(keys, A)
