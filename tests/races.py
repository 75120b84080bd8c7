"""Races between what runs do and the loss of the authority that it rests on.

In a scene a few runs are claimed together and advanced in one transaction by a worker that is stopped at a planned place.
There the authority of each run's publisher is taken away in a transaction of its own, which ends as its fate has it. In a
storm several workers and all losses are at it at once.

lost         committed at once, or as soon as the worker's locks let it
pending      under way when the worker goes on, and committed when the worker waits for it or is home
withdrawn    the same, but rolled back
spared       committed, but the publisher holds everything once more
kept         there is none
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from itertools import cycle, islice

from db.session import Database
from engine.core.errors import Refused
from tests.driver import drain, rows, until, working
from tests.losses import PAIRS, WAYS, Case
from tests.staging import Stage
from tests.stops import BEFORE, BETWEEN, Racer, waiting

FATES = ("lost", "lost", "lost", "lost", "pending", "pending", "withdrawn", "spared", "kept")
LOCKLESS = (BEFORE, BETWEEN)
"""Where the worker has no locks yet: nothing keeps the losses from happening."""

WORKERS = 3

HANDS = "hands"
"""What the connections call themselves on which authority is taken away."""

AT_ONCE = 8
"""How many runs a scene has at most."""


@dataclass
class Loss:
    """One publisher's authority goes, or nearly."""

    stage: Stage
    case: Case
    fate: str
    said: threading.Event = field(default_factory=threading.Event)
    """All is said up to the commit; where nothing holds that up, it is committed, too."""
    ends: threading.Event = field(default_factory=threading.Event)
    """What is pending may end."""
    over: Future[None] = field(default_factory=Future)

    def begin(self, threads: ThreadPoolExecutor) -> None:
        """In a thread of those."""
        if self.fate in ("lost", "spared"):
            self.ends.set()
        self.over = threads.submit(self._go)

    def _go(self) -> None:
        try:
            while not self._went():
                pass
        finally:
            self.said.set()

    def _went(self) -> bool:
        """Whether it could be done: the moment of an expiry may have passed while a lock was waited for."""
        with self.stage.hands.engine.connect() as connection, connection.begin() as transaction:
            try:
                WAYS[self.case.way].lose(connection, self.stage.where, self.case)
            except Refused as refusal:
                if refusal.path != "expires_at":
                    raise
                self.case.soon *= 2
                return False
            if not self.ends.is_set():
                self.said.set()
                assert self.ends.wait(60), "nobody ended it"
            if self.fate == "withdrawn":
                transaction.rollback()
        if "expires" in self.case.way:
            until(self._has_come, within=60)
        return True

    def _has_come(self) -> bool:
        """Whether nothing of the publisher's has yet to expire."""
        query = "SELECT 1 FROM role_assignments WHERE user_id = :user AND expires_at > clock_timestamp()"
        return not rows(self.stage.hands, query, user=self.case.publisher)


@contextmanager
def hands_of(database: Database) -> Iterator[Database]:
    """The same database by connections that are kept, one for each loss of a scene."""
    settings = database.settings.model_copy(update={"pool_size": AT_ONCE + 1})
    with closing(Database(database.owner_url, database.app_url, settings, application_name=HANDS)) as hands:
        yield hands


def planned(stage: Stage, chance: random.Random, rounds: int) -> list[Loss]:
    """So many cases, set up: every combination of step and loss in turn, their fates by chance."""
    pairs = chance.sample(PAIRS, len(PAIRS))
    losses = []
    for kind, way in islice(cycle(pairs), rounds):
        fate = chance.choice([fate for fate in FATES if fate != "spared" or way != "the publisher is suspended"])
        losses.append(Loss(stage, Case(kind, way, after=chance.random() < 0.3, spare=fate == "spared"), fate))
    stage.set_up([loss.case for loss in losses])
    return losses


def scene(stage: Stage, racer: Racer, losses: Sequence[Loss], at: int) -> None:
    """These runs, and these losses while the worker is stopped at that place."""
    stage.starts([loss.case for loss in losses])
    going = [loss for loss in losses if loss.fate != "kept"]
    work = racer.sets_out(stage.acme, at)
    racer.stopped(work)
    with ThreadPoolExecutor(len(losses)) as threads:
        for loss in going:
            loss.begin(threads)
        until(lambda: unsaid(going) <= (0 if at in LOCKLESS else waiting(racer.watch, HANDS)), within=60)
        racer.goes_on()
        racer.waits_for_a_row(work)
        for loss in going:
            loss.ends.set()
    for each in (work, *(loss.over for loss in going)):
        each.result(60)


def unsaid(losses: Sequence[Loss]) -> int:
    """How many have still to say something, be it that they are kept from it or that they are at it."""
    return sum(not loss.said.is_set() for loss in losses)


def storm(stage: Stage, chance: random.Random, losses: Sequence[Loss]) -> None:
    """All these runs are due at once, several workers take them up, and the losses come in any order meanwhile."""
    stage.starts([loss.case for loss in losses])
    going = [loss for loss in losses if loss.fate != "kept"]
    chance.shuffle(going)
    database = stage.acme.database
    with ExitStack() as stack, ThreadPoolExecutor(WORKERS) as ours, ThreadPoolExecutor(WORKERS) as theirs:
        workers = [stack.enter_context(working(database, batch_size=4)) for _ in range(WORKERS)]
        works = [ours.submit(drain, worker, stage.acme, within=90) for worker in workers]
        for loss in going:
            loss.ends.set()
            loss.begin(theirs)
        for each in (*works, *(loss.over for loss in going)):
            each.result(90)
