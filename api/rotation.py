"""Keys that their issuer replaces now and then: fetched when they are first needed, and again as they grow old.

    younger than half their age    they are what there is
    from then on                   fetched again behind the backs of those who ask
    older than their age           whoever asks waits for that: a key may have been withdrawn
    older than the longest         nothing counts: the answer is Unavailable

A key nobody has heard of makes us ask at once, but once in a cool-down, however many such keys come. One fetch is under way at a
time, in a thread of its own and under one deadline, and a failure is not tried again within the cool-down. So callers can neither
hammer the issuer through us nor fill our threads: few wait for a strange key, and nobody with a known one waits for an issuer
that is known to be away; one that is too slow for the deadline is.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from api.errand import Errand
from api.tokens import VerifyingKey
from engine.core.errors import Unavailable
from engine.core.faults import message_of
from engine.egress.deadline import Deadline

log = logging.getLogger("api")

Fetch = Callable[[Deadline], Mapping[str, VerifyingKey]]
"""The keys that count now. Raises Unavailable."""

SEATS = 8
"""Threads that may wait for a strange key; the others are told at once that there is none."""


@dataclass(frozen=True, slots=True)
class _Held:
    """Keys, and the moment of our clock from which they may have been out of date."""

    keys: Mapping[str, VerifyingKey] = field(default_factory=dict)
    since: float = -math.inf


class RotatingKeys:
    """A KeySource over `fetch`. All times are in seconds; `clock` tells the age of keys."""

    def __init__(
        self,
        fetch: Fetch,
        *,
        max_age: float,
        longest: float,
        cool_down: float,
        timeout: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._fetch = fetch
        self._max_age, self._longest, self._cool_down, self._timeout = max_age, longest, cool_down, timeout
        self._clock = clock
        self._lock = threading.Lock()
        self._seats = threading.BoundedSemaphore(SEATS)
        self._held = _Held()
        self._errand: Errand | None = None
        self._stranger_at = -math.inf
        """When a strange key last had us ask."""
        self._failed_at: float | None = None
        """When the issuer was last found away, unless it has answered since."""

    def find(self, key_id: str) -> VerifyingKey | None:
        """As KeySource: Unavailable while the issuer is away and no key counts, or whether this one does cannot be told."""
        with self._lock:
            held, errand = self._held, self._errand_for(key_id)
        age = self._clock() - held.since
        if errand is not None:
            if age >= self._longest:
                errand.wait()
            elif key_id not in held.keys:
                self._wait_seated(errand)
            elif age >= self._max_age and not self._is_known_away():
                errand.wait()
        return self._answer(key_id)

    def _answer(self, key_id: str) -> VerifyingKey | None:
        with self._lock:
            held, failed = self._held, self._failed_at is not None
        key = held.keys.get(key_id)
        if self._clock() - held.since >= self._longest or (key is None and failed):
            raise Unavailable("network_error", "The issuer of the token cannot be asked for its keys.")
        return key

    def _errand_for(self, key_id: str) -> Errand | None:
        """The fetch under way, or a new one if it is time for one. Called with the lock."""
        now = self._clock()
        age = now - self._held.since
        strange = age < self._max_age / 2 and key_id not in self._held.keys
        due = age >= self._max_age / 2 or (strange and now - self._stranger_at >= self._cool_down)
        away = self._failed_at is not None and now - self._failed_at < self._cool_down
        if self._errand is None and due and not away:
            self._start(Errand.within(self._timeout, for_a_stranger=strange))
        return self._errand

    def _start(self, errand: Errand) -> None:
        self._errand = errand
        try:
            threading.Thread(target=self._run, args=(errand,), name="issuer's keys", daemon=True).start()
        except RuntimeError:  # no thread left
            self._end(errand, None)

    def _run(self, errand: Errand) -> None:
        since = self._clock()
        keys: Mapping[str, VerifyingKey] | None = None
        try:
            keys = self._fetch(errand.deadline)
        except Unavailable as failure:
            log.warning("the issuer's keys could not be fetched: %s", failure.message)
        except Exception as error:  # whatever it is, who waits must not wait for ever
            log.error("the issuer's keys could not be fetched: %s", message_of(error))
        with self._lock:
            self._end(errand, None if keys is None else _Held(keys, since))

    def _end(self, errand: Errand, held: _Held | None) -> None:
        """Called with the lock."""
        now = self._clock()
        self._errand = None
        self._held = held or self._held
        self._failed_at = now if held is None else None
        if errand.for_a_stranger:
            self._stranger_at = now
        errand.done.set()

    def _wait_seated(self, errand: Errand) -> None:
        if self._seats.acquire(blocking=False):
            try:
                errand.wait()
            finally:
                self._seats.release()

    def _is_known_away(self) -> bool:
        """A failure is news for as long as keys are."""
        failed_at = self._failed_at
        return failed_at is not None and self._clock() - failed_at < self._max_age
