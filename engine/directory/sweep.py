"""The sweep: takes away what has expired, and tells the realm so. It counted for nothing since the moment it expired."""

from __future__ import annotations

import logging
from collections.abc import Set

from db.session import Database
from db.statements.expiry import holders_of_expired
from engine.core.faults import is_outage, message_of, place_of
from engine.core.ledger import Ledger
from engine.core.trail import Cause
from engine.directory import groups, roles
from engine.directory.facts import Key, Wanted
from engine.directory.load import load_facts

log = logging.getLogger("engine.sweep")


def sweep(database: Database) -> int:
    """Remove expired assignments and group memberships, up to a thousand. Returns how many went.

    All in one transaction, or if that fails one user after another, so that what cannot be removed keeps nothing else. Raises
    only when the database is away.
    """
    with database.begin() as connection:
        holders = {(row.realm_id, row.user_id) for row in holders_of_expired(connection)}
    if not holders:
        return 0
    swept = _sweep(database, holders)
    if swept is None:
        swept = sum(_sweep(database, {holder}) or 0 for holder in sorted(holders))
    return swept


def _sweep(database: Database, holders: Set[Key]) -> int | None:
    """Remove what has expired of these users. None when that failed, and nothing of it was done."""
    try:
        with database.begin() as connection:
            facts = load_facts(connection, Wanted(changing=set(holders)))
            ledger, swept = Ledger(), 0
            for user in sorted(holders):
                cause = Cause(user[0])
                for held in list(facts.assignments.get(user, {}).values()):
                    if not facts.live(held.expires_at):
                        ledger.add(roles.expire(facts, cause, user, held).rows)
                        swept += 1
                for member in list(facts.group_members.get(user, {}).values()):
                    if not facts.live(member.expires_at):
                        ledger.add(groups.expire_member(facts, cause, user, member).rows)
                        swept += 1
            ledger.write(connection)
            return swept
    except Exception as error:
        if is_outage(error):
            raise
        whose = sorted(holders)[0][1] if len(holders) == 1 else f"{len(holders)} users"
        log.error("what has expired of %s could not be removed: %s at %s", whose, message_of(error), place_of(error))
        return None
