"""The threads that make endpoint calls for a worker, and the answers they bring home."""

from __future__ import annotations

import logging
import queue
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

from engine.core.errors import Unavailable
from engine.core.faults import message_of, place_of
from engine.core.leases import Lease
from engine.core.settings import EngineSettings
from engine.egress.secrets import Keyring
from engine.lifecycle.calls import Answered, make_call
from engine.lifecycle.moves import Move

log = logging.getLogger("engine.worker")


class Callers:
    """Makes calls, each in a thread, each under its own deadline. `wake` is called whenever an answer has come."""

    def __init__(self, settings: EngineSettings, keyring: Keyring, wake: Callable[[], None]) -> None:
        self._settings = settings
        self._keyring = keyring
        self._wake = wake
        self._threads = ThreadPoolExecutor(settings.workers.calls_in_flight, thread_name_prefix="call")
        self._answers: queue.SimpleQueue[tuple[Lease, Answered]] = queue.SimpleQueue()
        self.in_flight: set[Lease] = set()
        """Leases whose call is out, or whose answer is not recorded yet."""

    @property
    def room(self) -> int:
        """How many more calls may go out."""
        return self._settings.workers.calls_in_flight - len(self.in_flight)

    @property
    def has_answers(self) -> bool:
        """Whether an answer waits to be recorded."""
        return not self._answers.empty()

    def send(self, lease: Lease, move: Move) -> None:
        """Make the call that a committed move has planned."""
        assert move.call is not None
        assert move.decided_at is not None
        call, run, decided_at = move.call, move.run, (move.decided_at, time.monotonic())
        self.in_flight.add(lease)

        def make() -> None:
            try:
                answered = make_call(run, call, self._keyring, self._settings.delivery, decided_at=decided_at)
            except Exception as error:
                log.error("a call of %s failed in our code: %s at %s", run.id, message_of(error), place_of(error))
                answered = Answered(call, Unavailable("error", f"the call could not be made: {message_of(error)}"))
            self._answers.put((lease, answered))
            self._wake()

        self._threads.submit(make)

    def take(self, most: int) -> dict[Lease, Answered]:
        """Up to `most` answers. They count as in flight until `recorded` says otherwise."""
        taken: dict[Lease, Answered] = {}
        while len(taken) < most:
            try:
                lease, answered = self._answers.get_nowait()
            except queue.Empty:
                break
            taken[lease] = answered
        return taken

    def put_back(self, answers: Mapping[Lease, Answered]) -> None:
        """Answers that could not be recorded now: the calls are not made again for that, as long as the leases hold."""
        for answer in answers.items():
            self._answers.put(answer)

    def recorded(self, lease: Lease) -> None:
        """The answer is written down, or the run is no longer ours."""
        self.in_flight.discard(lease)

    def close(self) -> None:
        """Start no more calls. Those that are out end at their deadlines; nobody records their answers here."""
        self._threads.shutdown(wait=False, cancel_futures=True)
