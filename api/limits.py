"""How often a caller may fail in a minute. What succeeds costs nothing and is held up only by failures of the same caller.

Counted in this process and in memory: several processes count each for itself, and a new one begins anew. The window is our
own: the memory of `limits` keeps every key it has seen for ever, and starts a thread to look through all of them.
"""

from __future__ import annotations

import math
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address

from starlette.datastructures import Address

from api.problems import Problem
from api.settings import ApiSettings

PERIOD = 60.0
"""Seconds that a failure counts."""
MAX_KEYS = 10_000
"""Callers that are remembered at once. One more, and who has not failed for the longest time is forgotten."""


class Window:
    """The failures of the last minute, by caller. `amount` of them may be: 0 is any number. Safe among threads."""

    def __init__(self, amount: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.amount = amount
        self._clock = clock
        self._lock = threading.Lock()
        self._failures: OrderedDict[str, deque[float]] = OrderedDict()
        """The latest `amount` moments of each, those who failed last at the end."""

    def __len__(self) -> int:
        return len(self._failures)

    def wait(self, key: str) -> int:
        """Seconds until this caller may fail again: 0, or 1 to 60."""
        with self._lock:
            return self._wait(key, self._clock())

    def failed(self, key: str) -> int:
        """Count a failure. Returns 0; or the seconds to wait, if there were too many already: this one is not counted."""
        with self._lock:
            now = self._clock()
            self._forget(now)
            wait = self._wait(key, now)
            if self.amount and not wait:
                self._failures.setdefault(key, deque(maxlen=self.amount)).append(now)
                self._failures.move_to_end(key)
                if len(self._failures) > MAX_KEYS:
                    self._failures.popitem(last=False)
            return wait

    def _wait(self, key: str, now: float) -> int:
        moments = self._failures.get(key)
        if moments is None or len(moments) < self.amount:
            return 0
        return max(0, math.ceil(moments[0] + PERIOD - now))

    def _forget(self, now: float) -> None:
        while self._failures and next(iter(self._failures.values()))[-1] <= now - PERIOD:
            self._failures.popitem(last=False)


@dataclass(frozen=True, slots=True)
class FailureLimits:
    """Both windows, and what is answered when one is full."""

    invalid_tokens: Window
    refusals: Window

    @classmethod
    def of(cls, settings: ApiSettings) -> FailureLimits:
        """As the operator set them."""
        return cls(Window(settings.invalid_tokens_per_minute), Window(settings.refusals_per_minute))

    def count_unknown(self, client: Address | None) -> None:
        """Nobody knows who calls from there. Raises Problem("too_many_requests") when that was so too often."""
        _hold_up(self.invalid_tokens.failed(place_of(client)))

    def require_few(self, caller: str) -> None:
        """Raise Problem("too_many_requests") while too much was refused to this caller."""
        _hold_up(self.refusals.wait(caller))

    def count_refusal(self, caller: str) -> None:
        """Something was refused to this caller."""
        self.refusals.failed(caller)


def place_of(client: Address | None) -> str:
    """What counts as one place: an IPv4 address, or the network (/64) of an IPv6 address, for each host has one to itself."""
    try:
        address = ip_address(client.host if client is not None else "")
    except ValueError:  # a socket of this machine, or a name that a proxy made up
        return "unknown"
    if isinstance(address, IPv6Address):
        return str(address.ipv4_mapped or int(address) >> 64)
    return str(address)


def _hold_up(seconds: int) -> None:
    if seconds:
        raise Problem("too_many_requests", headers={"Retry-After": str(seconds)})
