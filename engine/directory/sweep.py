"""The sweep: takes away what has expired, and tells the realm so. It counted for nothing since the moment it expired."""

from __future__ import annotations

from db.session import Database
from db.statements.expiry import holders_of_expired
from db.statements.runs import now
from engine.core.ledger import Ledger
from engine.core.trail import Cause
from engine.directory import groups, roles
from engine.directory.facts import Wanted
from engine.directory.load import load_facts


def sweep(database: Database) -> int:
    """Remove expired assignments and group memberships, up to a thousand. Returns how many went."""
    with database.begin() as connection:
        holders = {(row.realm_id, row.user_id) for row in holders_of_expired(connection)}
        if not holders:
            return 0
        facts = load_facts(connection, Wanted(changing=holders), now(connection))
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
