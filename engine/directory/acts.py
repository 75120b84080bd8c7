"""One act of the directory by hand: facts under locks, a verb, and its rows, in the caller's transaction."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import Connection

from db.statements.outbox import notify
from engine.core.ledger import Ledger
from engine.directory.effects import Effect
from engine.directory.facts import Facts, Wanted
from engine.directory.load import load_facts


def perform(connection: Connection, wanted: Wanted, act: Callable[[Facts], Effect]) -> Effect:
    """Load what is wanted, let `act` decide on it, write what it wants. Wakes the workers when the caller commits.

    Raises what `act` raises; nothing is written then.
    """
    effect = act(load_facts(connection, wanted))
    record(connection, effect)
    return effect


def record(connection: Connection, effect: Effect) -> None:
    """Write the rows of an effect that needed no facts."""
    if effect.rows:
        ledger = Ledger()
        ledger.add(effect.rows)
        ledger.write(connection)
        notify(connection)
