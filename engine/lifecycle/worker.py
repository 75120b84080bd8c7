"""A worker: claims runs and advances them, dispatches the outbox, makes calls, delivers mail, sweeps what has expired.

`run_pass` does one of each and returns; whoever hosts it (a Prefect shift, the command line, a test) calls it again when
`wait` says so. Several workers need not know of each other: leases and fences keep them apart.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from db.session import Database
from db.statements import runs as statements
from db.statements.outbox import CHANNEL
from engine.core import leases
from engine.core.failpoints import hit
from engine.core.faults import is_contention, is_outage, message_of, place_of
from engine.core.leases import Holdings, Lease
from engine.core.ledger import ShortWrite
from engine.core.settings import EngineSettings
from engine.directory.sweep import sweep
from engine.egress.secrets import Keyring
from engine.egress.smtp import Mailer
from engine.lifecycle import rounds
from engine.lifecycle.activation import release_held
from engine.lifecycle.callers import Callers
from engine.lifecycle.calls import Answered
from engine.lifecycle.guilty import record_guilty
from engine.lifecycle.moves import Move
from engine.lifecycle.plans import Plans
from engine.lifecycle.reports import EndedRun, PassReport, Tally
from engine.lifecycle.triggers import start_for_events
from engine.outbox.dispatch import dispatch
from engine.outbox.mail import deliver_due

__all__ = ["EndedRun", "PassReport", "Worker"]

log = logging.getLogger("engine.worker")

SWEEP_EVERY = 5.0
"""Seconds between two looks for what has expired."""

CONTENTION_TRIES = 2
"""How often a batch that lost to another transaction is done again before its runs are done one by one."""

CONTENTION_PAUSE = 1.0
"""Seconds after which a run is looked at again that lost to another transaction all by itself; twice that at most."""

DISPATCHES = 4
"""Batches of events a pass dispatches at most, so that a full outbox holds up neither runs nor a stop."""

CLOSING_GRACE = 1.0
"""Seconds a worker that stops waits for calls that are out; leases must be back within two (FAULTS.md, 9)."""

SHORTEST_WAIT = 0.02
"""Seconds an idle worker waits at least, so that a run which is due but not to be had does not make it spin."""


class Worker:
    """One worker of one process. Used from one thread; `wake` may be called from any.

    Raises psycopg.OperationalError when the database is away as it opens.
    """

    def __init__(self, database: Database, settings: EngineSettings, keyring: Keyring) -> None:
        self.owner = leases.new_owner()
        self._database = database
        self._settings = settings
        self._plans = Plans()
        self._listener = database.listen(CHANNEL)
        self._holdings = Holdings(database, self.owner, settings.workers)
        self._callers = Callers(settings, keyring, self.wake)
        self._mailer = Mailer(settings.mail)
        self._courier = ThreadPoolExecutor(1, thread_name_prefix="mail")
        self._mail: Future[int] | None = None
        self._closing = threading.Event()
        self._unsure = False
        self._after = ""
        self._more = False
        self._swept_at = 0.0

    @classmethod
    def open(cls, database: Database, settings: EngineSettings, keyring: Keyring) -> Worker:
        """As the constructor: the word that hosts use."""
        return cls(database, settings, keyring)

    def wake(self) -> None:
        """End the wait of the thread that hosts this worker."""
        self._listener.wake()

    def wait(self, stop: threading.Event) -> None:
        """Until notified, until the next run is due, or the poll interval; not at all while there is more to do."""
        if stop.is_set() or self._more or self._callers.has_answers:
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
        tally = Tally()
        self._more = False
        self._hand_back_unsure()
        try:
            active = self._record_answers(tally)
            self._dispatch(tally)
            active += self._claim(tally)
            self._advance(active, tally)
            self._deliver(tally)
            self._sweep(tally)
        except BaseException:
            self._unsure = True
            raise
        if tally.counts["moved"] or tally.counts["swept"]:
            self._more = True  # it may have left events to dispatch, and nobody notifies us of our own
        return tally.report()

    def close(self) -> int:
        """Stop: record what calls bring home within a moment, hand every lease back. Returns how many were still held.

        A call that is still out then is a step that was interrupted; whoever holds the run next records it as such.
        """
        self._closing.set()
        until = time.monotonic() + CLOSING_GRACE
        try:
            while self._callers.in_flight and time.monotonic() < until:
                time.sleep(0.02)
                if self._callers.has_answers:
                    self._give_back(self._record_answers(Tally()))
        except Exception as error:
            log.warning("a worker that stops could not record an answer: %s", message_of(error))
        self._holdings.close()
        self._callers.close()
        self._courier.shutdown(wait=False, cancel_futures=True)
        try:
            return leases.hand_back(self._database, self.owner)
        finally:
            self._listener.close()

    def _hand_back_unsure(self) -> None:
        """After a pass that broke off: what was in hand may or may not be committed, and a claim may have been made that we
        never heard of. All but what waits for an answer is handed back, and read again by whoever claims it."""
        if not self._unsure:
            return
        calling = self._callers.in_flight
        with self._database.begin() as connection:
            statements.give_back_all(connection, owner=self.owner, but=[lease.row for lease in calling])
        self._holdings.drop([lease for lease in self._holdings.all() if lease not in calling])
        self._unsure = False

    def _claim(self, tally: Tally) -> list[Lease]:
        workers = self._settings.workers
        with self._database.begin() as connection:
            claimed = leases.claim(connection, self.owner, workers, batch=workers.batch_size, after=self._after)
        hit("claim.after_commit")
        if not claimed:
            return []
        self._holdings.add(claimed)
        self._after = max((lease.realm_id for lease in claimed), key=lambda realm: (realm <= self._after, realm))
        by_realm = Counter(lease.realm_id for lease in claimed)
        if len(claimed) >= workers.batch_size or max(by_realm.values()) >= workers.tenant_batch_share:
            self._more = True
        tally.counts["claimed"] += len(claimed)
        return claimed

    def _advance(self, active: list[Lease], tally: Tally) -> None:
        """Up to 25 transitions each. A run that a worker died on goes alone, behind the others."""
        together = [lease for lease in active if not lease.is_suspect]
        most = self._settings.workers.max_transitions
        for transition in range(1, most + 1):
            if not together:
                break
            together = self._round(together, tally, last=transition == most)
        for lease in sorted(active, key=lambda lease: lease.interruptions):  # what killed fewer workers goes first
            if lease.is_suspect:
                self._alone(lease, tally)

    def _alone(self, lease: Lease, tally: Tally) -> None:
        """Advance a suspect one transition, having counted beforehand that it may kill us too."""
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
        if not counted:
            self._holdings.drop([lease])
        elif going := self._round([lease], tally, last=True):
            self._give_back(going)

    def _round(self, batch: list[Lease], tally: Tally, *, last: bool) -> list[Lease]:
        """One round of a batch; returns the leases that go on."""

        def work(some: Sequence[Lease]) -> list[Move]:
            room = self._callers.room
            return rounds.advance(self._database, self.owner, self._plans, some, last=last, room_for_calls=room)

        return self._isolated(batch, tally, work, self._put_off)

    def _record_answers(self, tally: Tally) -> list[Lease]:
        """Record the answers that have come; returns the leases that go on. What cannot be recorded now is kept."""
        answers = self._callers.take(self._settings.workers.batch_size)
        if not answers:
            return []

        def work(some: Sequence[Lease]) -> list[Move]:
            moves = rounds.record_answers(self._database, self.owner, self._plans, {key: answers[key] for key in some})
            for lease in some:
                self._callers.recorded(lease)
            return moves

        def keep(lease: Lease) -> None:
            self._callers.put_back({lease: answers[lease]})

        try:
            return self._isolated(list(answers), tally, work, keep)
        except Exception:
            unrecorded: dict[Lease, Answered] = {
                lease: answered for lease, answered in answers.items() if lease in self._callers.in_flight
            }
            self._callers.put_back(unrecorded)
            raise

    def _isolated(
        self,
        batch: list[Lease],
        tally: Tally,
        work: Callable[[Sequence[Lease]], list[Move]],
        beaten: Callable[[Lease], None],
    ) -> list[Lease]:
        """Do the batch as one; where that fails for a reason of one run's own, run by run, so that it alone is at fault.

        A run that loses to another transaction even by itself is nobody's fault: `beaten` sees to it.
        """
        for attempt in range(CONTENTION_TRIES):
            try:
                return self._settle(batch, work(batch), tally)
            except Exception as error:
                if is_outage(error):
                    raise
                if not is_contention(error):
                    if len(batch) == 1:
                        return self._blame(batch[0], error, tally)
                    log.warning("a batch of %d failed and is done run by run: %s", len(batch), message_of(error))
                    break
                if len(batch) == 1 and attempt > 0:
                    break
                time.sleep(random.uniform(0, 0.05) * 2**attempt)
        if len(batch) == 1:
            beaten(batch[0])
            return []
        return [going for lease in batch for going in self._isolated([lease], tally, work, beaten)]

    def _settle(self, batch: Sequence[Lease], moves: Sequence[Move], tally: Tally) -> list[Lease]:
        """After the commit: who goes on, who is called, who is no longer held."""
        by_run = {(lease.realm_id, lease.run_id): lease for lease in batch}
        tally.take(moves)
        going, released = [], set(batch)
        for move in moves:
            lease = by_run[move.run.key]
            if move.call is not None:
                self._callers.send(lease, move)
                tally.counts["called"] += 1
                released.discard(lease)
            elif move.keep and not move.finished:
                going.append(Lease(lease.realm_id, lease.run_id, lease.fence))
                released.discard(lease)
        self._holdings.drop(released)
        return going

    def _blame(self, lease: Lease, error: Exception, tally: Tally) -> list[Lease]:
        """One run's own transaction failed: that is recorded on it, and it alone is tried again later or given up."""
        self._callers.recorded(lease)
        if isinstance(error, ShortWrite) and error.name == statements.SAVE_RUN.name:
            self._holdings.drop(
                [lease]
            )  # its lease ended while we decided: it is another's, and nothing is recorded of it
            return []
        what, where = message_of(error), place_of(error)
        log.error("the run %s failed in its own transaction: %s at %s", lease.run_id, what, where)
        tally.counts["errors"] += 1
        moves = record_guilty(self._database, self.owner, self._plans, lease, error)
        return self._settle([lease], moves, tally)

    def _put_off(self, lease: Lease) -> None:
        """Somebody else holds what this run needs. It is due again in a moment, and nothing is counted against it."""
        pause = CONTENTION_PAUSE * random.uniform(1, 2)
        with self._database.begin() as connection:
            statements.put_off(connection, lease.row, owner=self.owner, pause=pause)
        self._holdings.drop([lease])

    def _give_back(self, batch: Sequence[Lease]) -> None:
        with self._database.begin() as connection:
            statements.give_back(connection, [lease.row for lease in batch], owner=self.owner)
        self._holdings.drop(batch)

    def _dispatch(self, tally: Tally) -> None:
        for _ in range(DISPATCHES):
            try:
                done = dispatch(self._database, start_for_events)
            except Exception as error:
                if is_outage(error):
                    raise
                tally.counts["errors"] += 1
                log.error("a dispatch failed: %s at %s", message_of(error), place_of(error))
                return
            tally.counts["dispatched"] += done.events
            tally.counts["started"] += done.started
            tally.counts["errors"] += done.failed
            if not done.was_full or done.failed:
                return
        self._more = True

    def _deliver(self, tally: Tally) -> None:
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
            self._mail = self._courier.submit(
                deliver_due, self._database, self._mailer, self._settings.mail, self._closing
            )
            self._mail.add_done_callback(self._look_for_more_mail)

    def _look_for_more_mail(self, done: Future[int]) -> None:
        """Called in the thread of the mail. Where some went out, more may be waiting."""
        if not done.cancelled() and done.exception() is None and done.result():
            self._listener.wake()

    def _sweep(self, tally: Tally) -> None:
        if time.monotonic() - self._swept_at >= SWEEP_EVERY:
            self._swept_at = time.monotonic()
            tally.counts["swept"] += sweep(self._database) + release_held(self._database)
