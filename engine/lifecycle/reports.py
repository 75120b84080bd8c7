"""What a pass of a worker did, in identifiers and counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from engine.lifecycle.moves import Move


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


class Tally:
    """A report in the making."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._ended: list[EndedRun] = []
        self._failed: Counter[str] = Counter()

    def take(self, moves: Sequence[Move]) -> None:
        """Count moves that are committed."""
        for move in moves:
            self.counts["moved"] += 1
            if move.failed_attempt is not None:
                self._failed[move.failed_attempt] += 1
            if move.finished:
                run = move.run
                self._ended.append(EndedRun(run.realm_id, run.id, run.workflow_id, move.state))

    def report(self) -> PassReport:
        """The finished report."""
        return PassReport(**self.counts, ended=tuple(self._ended), failed_attempts=dict(self._failed))
