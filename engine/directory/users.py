"""Verbs on users: create, change, suspend, reactivate."""

from __future__ import annotations

from collections.abc import Mapping

from engine.core import ids
from engine.core.errors import Refused
from engine.core.trail import Cause, audit, event
from engine.directory.effects import INSERT_USER, SET_USER_STATE, UPDATE_USER, Effect
from engine.directory.facts import Facts, Key, UserFact


def create_user(cause: Cause, email: str, display_name: str, kind: str = "member") -> Effect:
    """A new, active user."""
    user_id = ids.new(ids.Prefix.USER)
    return Effect(
        True,
        [
            INSERT_USER(realm_id=cause.realm_id, id=user_id, email=email, display_name=display_name, kind=kind),
            audit(cause, "user.created", ("user", user_id), {"kind": kind}),
            event(cause, "user.created", user_id, None, {"kind": kind}),
        ],
        {"user_id": user_id},
    )


def update_user(facts: Facts, cause: Cause, user: Key, before: Mapping[str, str], after: Mapping[str, str]) -> Effect:
    """Change a user's members `email`, `display_name`, `kind`. The event says which changed (`changed_fields`), not to what.

    `before` is read in the same transaction, under the user's lock.
    """
    fact = _existing(facts, user)
    merged = {**before, **after}
    changed = sorted(name for name in ("email", "display_name", "kind") if merged[name] != before[name])
    if not changed:
        return Effect(False)
    facts.users[user] = UserFact(fact.id, merged["kind"], fact.state)
    return Effect(
        True,
        [
            UPDATE_USER(
                realm_id=user[0],
                id=user[1],
                email=merged["email"],
                display_name=merged["display_name"],
                kind=merged["kind"],
                updated_at=facts.now,
            ),
            audit(cause, "user.updated", ("user", user[1]), {"changed_fields": changed}),
            event(cause, "user.updated", user[1], None, {"changed_fields": changed}),
        ],
    )


def suspend(facts: Facts, cause: Cause, user: Key) -> Effect:
    """Suspend an account. Suspended already: unchanged."""
    fact = _existing(facts, user)
    if fact.state == "suspended":
        return Effect(False)
    facts.users[user] = UserFact(fact.id, fact.kind, "suspended")
    return _set_state(facts, cause, user, "suspended", "user.suspended")


def reactivate(facts: Facts, cause: Cause, user: Key) -> Effect:
    """Make a suspended account active again. Active already: unchanged."""
    fact = _existing(facts, user)
    if fact.state == "active":
        return Effect(False)
    facts.users[user] = UserFact(fact.id, fact.kind, "active")
    return _set_state(facts, cause, user, "active", "user.reactivated")


def _existing(facts: Facts, user: Key) -> UserFact:
    fact = facts.users.get(user)
    if fact is None or not fact.can_be_subject:
        raise Refused("not_found", "this user does not exist", "user_id")
    return fact


def _set_state(facts: Facts, cause: Cause, user: Key, state: str, type_: str) -> Effect:
    return Effect(
        True,
        [
            SET_USER_STATE(
                realm_id=user[0],
                id=user[1],
                state=state,
                suspended_at=facts.now if state == "suspended" else None,
                updated_at=facts.now,
            ),
            audit(cause, type_, ("user", user[1]), {}),
            event(cause, type_, user[1], None, {}),
        ],
    )
