"""Playing ahead: what tests will ask for is played side by side from the first question on.

Most of a crash test is waiting. Under xdist this wants `--dist loadfile`: where the tests of one file are dealt out to several
processes, each of them plays all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Generic, TypeVar

import pytest

HERE = Path(__file__).parent

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Ahead(Generic[K, V]):
    """Results by key, each played once."""

    def __init__(self, play: Callable[[K], V], pool: ThreadPoolExecutor) -> None:
        self._play = play
        self._pool = pool
        self._played: dict[K, Future[V]] = {}

    def start(self, key: K) -> Future[V]:
        """Have it played, unless it is already."""
        if key not in self._played:
            self._played[key] = self._pool.submit(self._play, key)
        return self._played[key]

    def __call__(self, key: K) -> V:
        """What came of it; raises what its play raised."""
        return self.start(key).result()

    def good(self) -> Iterator[tuple[K, V]]:
        """All that was played to its end."""
        for key, result in self._played.items():
            if result.exception() is None:
                yield key, result.result()


@contextmanager
def played_ahead(play: Callable[[K], V], keys: Iterable[K], *, side_by_side: int) -> Iterator[Ahead[K, V]]:
    """Play all of `keys`, so many at once."""
    with ThreadPoolExecutor(side_by_side, thread_name_prefix="ahead") as pool:
        ahead = Ahead(play, pool)
        for key in keys:
            ahead.start(key)
        yield ahead


def asked_for(request: pytest.FixtureRequest, *parameters: str) -> list[tuple[Any, ...]]:
    """The values of these parameters in the crash tests that were selected, each combination once, in order."""
    ours = (item for item in request.session.items if item.path.parent == HERE)
    given = (getattr(item, "callspec", None) for item in ours)
    found = (call.params for call in given if call is not None and set(parameters) <= call.params.keys())
    return list(dict.fromkeys(tuple(params[name] for name in parameters) for params in found))
