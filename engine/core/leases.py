"""Leases: who may advance a run, until when, and under which fence (lifecycle.md, decisions 1 and 2).

A claim is one statement, on the database's clock, and the fence of each run grows with it. Nothing is recovered at start-up:
what a dead worker held becomes due when its lease ends, and the next claim of anybody takes it.
"""

from __future__ import annotations

import os
import secrets
import socket
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field

from sqlalchemy import Connection

from db.session import Database
from db.statements import runs as statements
from engine.core.settings import HEARTBEATS_PER_LEASE, WorkerSettings


@dataclass(frozen=True, slots=True, order=True)
class Lease:
    """A run that this worker holds. `taken_over`: its last holder neither finished nor handed it back; `interruptions`: how
    many in a row came to grief on it, as far as is known."""

    realm_id: str
    run_id: str
    fence: int
    taken_over: bool = field(default=False, compare=False)
    interruptions: int = field(default=0, compare=False)

    @property
    def row(self) -> statements.Lease:
        return self.realm_id, self.run_id, self.fence

    @property
    def is_suspect(self) -> bool:
        """Whether the run may be what a worker died on: it is advanced alone."""
        return self.taken_over or self.interruptions > 0


def new_owner() -> str:
    """The name a worker's leases carry. The random part keeps two workers apart whose hosts and process ids are the same."""
    return f"worker-{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(6)}"


def claim(connection: Connection, owner: str, settings: WorkerSettings, *, batch: int, after: str) -> list[Lease]:
    """Lease what is due, at most `batch` runs, the realms in turn behind `after`."""
    rows = statements.claim(
        connection,
        owner=owner,
        lease=settings.lease_duration.total_seconds(),
        batch=min(batch, settings.batch_size),
        share=settings.tenant_batch_share,
        after=after,
    )
    return [Lease(row.realm_id, row.id, row.fence, row.taken_over, row.interruptions) for row in rows]


def hand_back(database: Database, owner: str) -> int:
    """Free every lease of a worker that stops or was seen to die. Returns how many; their runs are due at once."""
    with database.begin() as connection:
        return statements.give_back_all(connection, owner=owner)


class Holdings:
    """The leases of one worker, renewed by a thread of their own, which no slow step can block."""

    def __init__(self, database: Database, owner: str, settings: WorkerSettings) -> None:
        self.owner = owner
        self._database = database
        self._lease = settings.lease_duration.total_seconds()
        self._held: dict[tuple[str, str], Lease] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._renew_for_ever, name=f"{owner} heartbeat", daemon=True)
        self._thread.start()

    def add(self, leases: Iterable[Lease]) -> None:
        """Renew these from now on."""
        with self._lock:
            self._held.update({(lease.realm_id, lease.run_id): lease for lease in leases})

    def drop(self, leases: Iterable[Lease]) -> None:
        """Renew these no longer: they ended, were handed back or were lost."""
        with self._lock:
            for lease in leases:
                if self._held.get((lease.realm_id, lease.run_id)) == lease:
                    del self._held[lease.realm_id, lease.run_id]

    def all(self) -> list[Lease]:
        """What is held now."""
        with self._lock:
            return sorted(self._held.values())

    def close(self) -> None:
        """Stop renewing."""
        self._stop.set()
        self._thread.join(timeout=self._lease)

    def _renew_for_ever(self) -> None:
        while not self._stop.wait(self._lease / HEARTBEATS_PER_LEASE):
            held = self.all()
            if not held:
                continue
            try:
                with self._database.begin() as connection:
                    statements.renew(connection, [lease.row for lease in held], owner=self.owner, lease=self._lease)
            except Exception:
                # The database is away or slow. The next beat tries again; if none succeeds in time the leases end, which is
                # what they are for.
                continue
