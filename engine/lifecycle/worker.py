"""A worker: claims runs and advances them, dispatches the outbox, makes calls, delivers mail, sweeps what has expired.

`run_pass` does one of each and returns; whoever hosts it (a Prefect shift, the command line, a test) calls it again when
`wait` says so. Several workers need not know of each other: leases and fences keep them apart.
"""

from __future__ import annotations

import logging
import queue
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Self

from db.session import Database
from db.statements import runs as statements
from db.statements.outbox import CHANNEL
from engine.core import leases
from engine.core.errors import Unavailable
from engine.core.failpoints import hit
from engine.core.faults import is_contention, is_outage, message_of, place_of
from engine.core.leases import Holdings, Lease
from engine.core.settings import EngineSettings
from engine.directory.sweep import sweep
from engine.egress.secrets import Keyring
from engine.egress.smtp import Mailer
from engine.lifecycle import rounds
from engine.lifecycle.calls import Answered, make_call
from engine.lifecycle.guilty import record_guilty
from engine.lifecycle.moves import Move
from engine.lifecycle.plans import Plans
from engine.lifecycle.triggers import start_for_events
from engine.outbox.dispatch import dispatch
from engine.outbox.mail import deliver_due

log = logging.getLogger("engine.worker")

SWEEP_EVERY = 5.0
"""Seconds between two looks for what has expired."""

CONTENTION_TRIES = 3
"""How often a batch that lost to another transaction is done again before its runs are handed back."""

CLOSING_GRACE = 1.0
"""Seconds a worker that stops waits for calls that are out; leases must be back within two (FAULTS.md, 9)."""

SHORTEST_WAIT = 0.02
"""Seconds an idle worker waits at least, so that a run which is due but not to be had does not make it spin."""


@dataclass(frozen=True, slots=True)
class EndedRun:
    """A run that came to its end in a pass."""

    realm_id: str
    run_id: str
    workflow_id: str
    state: str


@dataclass(frozen=True, slots=True)
class PassReport:
    """What a pass did. Identifiers and counts only."""

    claimed: int = 0
    moved: int = 0
    dispatched: int = 0
    started: int = 0
    called: int = 0
    delivered: int = 0
    swept: int = 0
    ended: tuple[EndedRun, ...] = ()
    failed_attempts: dict[str, int] = field(default_factory=dict)
    errors: int = 0

    @property
    def idle(self) -> bool:
        """Whether there was nothing to do."""
        return not (self.claimed or self.moved or self.dispatched or self.delivered or self.swept or self.errors)


class _Tally:
    """A report in the making."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.ended: list[EndedRun] = []
        self.failed: Counter[str] = Counter()

    def take(self, moves: Sequence[Move]) -> None:
        """Count moves that are committed."""
        for move in moves:
            self.counts["moved"] += 1
            if move.failed_attempt is not None:
                self.failed[move.failed_attempt] += 1
            if move.finished:
                run = move.run
                self.ended.append(EndedRun(run.realm_id, run.id, run.workflow_id, move.state))

    def report(self) -> PassReport:
        """The finished report."""
        return PassReport(**self.counts, ended=tuple(self.ended), failed_attempts=dict(self.failed))


class Worker:
    """One worker of one process. Used from one thread; `wake` may be called from any."""

    def __init__(self, database: Database, settings: EngineSettings, keyring: Keyring) -> None:
        self.owner = leases.new_owner()
        self._database = database
        self._settings = settings
        self._keyring = keyring
        self._plans = Plans()
        self._listener = database.listen(CHANNEL)
        self._holdings = Holdings(database, self.owner, settings.workers)
        self._mailer = Mailer(settings.mail)
        self._callers = ThreadPoolExecutor(settings.workers.calls_in_flight, thread_name_prefix="call")
        self._courier = ThreadPoolExecutor(1, thread_name_prefix="mail")
        self._mail: Future[int] | None = None
        self._answers: queue.SimpleQueue[tuple[Lease, Answered]] = queue.SimpleQueue()
        self._in_flight: set[Lease] = set()
        self._unsure: list[Lease] = []
        self._after = ""
        self._more = False
        self._swept_at = 0.0

    @classmethod
    def open(cls, database: Database, settings: EngineSettings, keyring: Keyring) -> Self:
        """A worker, listening. Raises psycopg.OperationalError when the database is away."""
        return cls(database, settings, keyring)

    def wake(self) -> None:
        """End the wait of the thread that hosts this worker."""
        self._listener.wake()

    def wait(self, stop: threading.Event) -> None:
        """Until notified, until the next run is due, or the poll interval; not at all while there is more to do."""
        if stop.is_set() or self._more or not self._answers.empty():
            return
        longest = self._settings.workers.poll_interval.total_seconds()
        try:
            with self._database.begin() as connection:
                due_in = statements.next_due_in(connection)
        except Exception as error:
            if not is_outage(error):
                raise
            due_in = None
        if due_in is not None:
            longest = max(SHORTEST_WAIT, min(longest, due_in))
        self._listener.wait(longest)

    def run_pass(self) -> PassReport:
        """One pass. Raises only when the database is away; then nothing is lost, and nothing was marked failed for it."""
        tally = _Tally()
        self._hand_back_unsure()
        try:
            active = self._take_answers(tally)
            self._dispatch(tally)
            active += self._claim(tally)
            self._advance(active, tally)
            self._deliver(tally)
            self._sweep(tally)
        except BaseException:
            # Nobody else would look at what is in hand, for it is renewed: all but what waits for an answer goes back.
            self._unsure = [lease for lease in self._holdings.all() if lease not in self._in_flight]
            raise
        if tally.counts["moved"] or tally.counts["swept"]:
            self._more = True  # it may have left events to dispatch, and nobody notifies us of our own
        return tally.report()

    def close(self) -> int:
        """Stop: record what calls bring home within a moment, hand every lease back. Returns how many were still held.

        A call that is still out then is a step that was interrupted; whoever holds the run next records it as such.
        """
        until = time.monotonic() + CLOSING_GRACE
        try:
            while self._in_flight and time.monotonic() < until:
                time.sleep(0.02)
                if not self._answers.empty():
                    self._give_back(self._take_answers(_Tally()))
        except Exception as error:
            log.warning("a worker that stops could not record an answer: %s", message_of(error))
        self._holdings.close()
        self._callers.shutdown(wait=False, cancel_futures=True)
        self._courier.shutdown(wait=False, cancel_futures=True)
        try:
            return leases.hand_back(self._database, self.owner)
        finally:
            self._listener.close()

    def _claim(self, tally: _Tally) -> list[Lease]:
        workers = self._settings.workers
        room = min(workers.batch_size, workers.calls_in_flight - len(self._in_flight))
        self._more = False
        if room <= 0:
            return []
        with self._database.begin() as connection:
            claimed = leases.claim(connection, self.owner, workers, batch=room, after=self._after)
        hit("claim.after_commit")
        if not claimed:
            return []
        self._holdings.add(claimed)
        self._after = max((lease.realm_id for lease in claimed), key=lambda realm: (realm <= self._after, realm))
        by_realm = Counter(lease.realm_id for lease in claimed)
        self._more = len(claimed) >= room or max(by_realm.values()) >= workers.tenant_batch_share
        tally.counts["claimed"] += len(claimed)
        return claimed

    def _advance(self, active: list[Lease], tally: _Tally) -> None:
        """Up to 25 transitions each. A run whose last worker died on it goes alone, behind the others."""
        together = [lease for lease in active if not lease.taken_over]
        most = self._settings.workers.max_transitions
        for transition in range(1, most + 1):
            if not together:
                break
            together = self._round(together, tally, last=transition == most)
        for lease in sorted(active, key=lambda lease: lease.interruptions):  # what killed fewer workers goes first
            if lease.taken_over:
                self._alone(lease, tally)

    def _alone(self, lease: Lease, tally: _Tally) -> None:
        """Advance a run that was taken over, one transition, having counted beforehand that it may kill us too."""
        with self._database.begin() as connection:
            rows = statements.lock_leased(connection, [lease.row], owner=self.owner)
            values = {
                "realm_id": lease.realm_id,
                "id": lease.run_id,
                "fence": lease.fence,
                "lease_owner": self.owner,
                "interruptions": rows[0].interruptions + 1 if rows else 0,
            }
            counted = bool(rows) and statements.COUNT_INTERRUPTION.run(connection, [values]) == 1
        if counted:
            self._round([lease], tally, last=True)
        else:
            self._holdings.drop([lease])

    def _round(self, batch: list[Lease], tally: _Tally, *, last: bool) -> list[Lease]:
        """One round of a batch; returns the leases that go on."""
        return self._isolated(
            batch, tally, lambda some: rounds.advance(self._database, self.owner, self._plans, some, last=last)
        )

    def _take_answers(self, tally: _Tally) -> list[Lease]:
        """Record the answers that have come; returns the leases that go on."""
        answers: dict[Lease, Answered] = {}
        while len(answers) < self._settings.workers.batch_size:
            try:
                lease, answered = self._answers.get_nowait()
            except queue.Empty:
                break
            answers[lease] = answered
            self._in_flight.discard(lease)
        if not answers:
            return []
        try:
            return self._isolated(
                list(answers),
                tally,
                lambda some: rounds.record_answers(
                    self._database, self.owner, self._plans, [(lease, answers[lease]) for lease in some]
                ),
            )
        except Exception:  # the database is away: the calls are not made again for that, as long as the leases hold
            self._in_flight |= answers.keys()
            for answer in answers.items():
                self._answers.put(answer)
            raise

    def _isolated(
        self, batch: list[Lease], tally: _Tally, work: Callable[[Sequence[Lease]], list[Move]]
    ) -> list[Lease]:
        """Do the batch as one; if that fails for a reason of one run's own, do it run by run, so that it alone is at fault."""
        for attempt in range(CONTENTION_TRIES):
            try:
                return self._settle(batch, work(batch), tally)
            except Exception as error:
                if is_outage(error):
                    raise
                if not is_contention(error):
                    if len(batch) > 1:
                        log.warning("a batch of %d failed and is done run by run: %s", len(batch), message_of(error))
                        return [going for lease in batch for going in self._isolated([lease], tally, work)]
                    return self._blame(batch[0], error, tally)
                time.sleep(random.uniform(0, 0.05) * 2**attempt)
        self._give_back(batch)
        return []

    def _settle(self, batch: Sequence[Lease], moves: Sequence[Move], tally: _Tally) -> list[Lease]:
        """After the commit: who goes on, who is called, who is no longer held."""
        by_run = {(lease.realm_id, lease.run_id): lease for lease in batch}
        tally.take(moves)
        going, released = [], set(batch)
        for move in moves:
            lease = by_run[move.run.key]
            if move.call is not None:
                self._send(lease, move)
                tally.counts["called"] += 1
                released.discard(lease)
            elif move.keep and not move.finished:
                going.append(Lease(lease.realm_id, lease.run_id, lease.fence))
                released.discard(lease)
        self._holdings.drop(released)
        return going

    def _send(self, lease: Lease, move: Move) -> None:
        assert move.call is not None
        assert move.decided_at is not None
        call, run, decided_at = move.call, move.run, (move.decided_at, time.monotonic())
        self._in_flight.add(lease)

        def make() -> None:
            try:
                answered = make_call(run, call, self._keyring, self._settings.delivery, decided_at=decided_at)
            except Exception as error:
                log.error("a call of %s failed in our code: %s at %s", run.id, message_of(error), place_of(error))
                answered = Answered(call, Unavailable("error", f"the call could not be made: {message_of(error)}"))
            self._answers.put((lease, answered))
            self._listener.wake()

        self._callers.submit(make)

    def _blame(self, lease: Lease, error: Exception, tally: _Tally) -> list[Lease]:
        """One run's own transaction failed: that is recorded on it, and it alone is tried again later or given up."""
        what, where = message_of(error), place_of(error)
        log.error("the run %s failed in its own transaction: %s at %s", lease.run_id, what, where)
        tally.counts["errors"] += 1
        moves = record_guilty(self._database, self.owner, self._plans, lease, error)
        return self._settle([lease], moves, tally)

    def _give_back(self, batch: Sequence[Lease]) -> None:
        with self._database.begin() as connection:
            statements.give_back(connection, [lease.row for lease in batch], owner=self.owner)
        self._holdings.drop(batch)

    def _hand_back_unsure(self) -> None:
        """After an outage: what was in hand may or may not be committed. It is handed back and read again when claimed."""
        if self._unsure:
            self._give_back(self._unsure)
            self._unsure = []

    def _dispatch(self, tally: _Tally) -> None:
        while True:
            done = dispatch(self._database, start_for_events)
            tally.counts["dispatched"] += done.events
            tally.counts["started"] += done.started
            tally.counts["errors"] += done.failed
            if not done.was_full or done.failed:
                return

    def _deliver(self, tally: _Tally) -> None:
        """Mail goes out in a thread of its own: a slow relay holds up nothing."""
        if self._mail is not None:
            if not self._mail.done():
                return
            done, self._mail = self._mail, None
            error = done.exception()
            if error is None:
                tally.counts["delivered"] += done.result()
            elif not is_outage(error):
                log.error("a delivery of mail failed: %s at %s", message_of(error), place_of(error))
        if self._mailer.enabled:
            self._mail = self._courier.submit(deliver_due, self._database, self._mailer, self._settings.mail)
            self._mail.add_done_callback(self._look_for_more_mail)

    def _look_for_more_mail(self, done: Future[int]) -> None:
        """Called in the thread of the mail. Where some went out, more may be waiting."""
        if not done.cancelled() and done.exception() is None and done.result():
            self._listener.wake()

    def _sweep(self, tally: _Tally) -> None:
        if time.monotonic() - self._swept_at >= SWEEP_EVERY:
            self._swept_at = time.monotonic()
            tally.counts["swept"] += sweep(self._database)
