"""Webhook subscriptions, by hand: made, given a new secret, paused, resumed, disabled, deleted.

A secret is of our making, shown once, and kept only encrypted and bound to its realm and subscription (lifecycle.md,
decision 9). No audit row holds it, nor the URL: many endpoints carry their key there.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from sqlalchemy import Connection, Row

from db.statements import subscription_changes as statements
from db.statements.runs import now
from engine.core import ids
from engine.core.errors import IllegalTransition, Refused
from engine.core.ledger import Ledger
from engine.core.machine import StateTable
from engine.core.trail import Cause, audit
from engine.directory.authority import authority_of
from engine.directory.commands.acting import actor_of, allow
from engine.directory.facts import Wanted
from engine.directory.load import load_facts
from engine.directory.roles import require_active
from engine.egress.destination import Destination
from engine.egress.secrets import Keyring
from engine.egress.signing import new_secret

SUBSCRIPTION = StateTable(
    "subscription",
    (
        ("active", "pause", "paused"),
        ("active", "disable", "disabled"),
        ("paused", "resume", "active"),
        ("paused", "disable", "disabled"),
        ("disabled", "resume", "active"),
        ("active", "delete", "deleted"),
        ("paused", "delete", "deleted"),
        ("disabled", "delete", "deleted"),
    ),
)
_AUDITED = {"pause": "paused", "resume": "resumed", "disable": "disabled"}

OVERLAP = timedelta(hours=24)
"""How long calls are signed with the rotated secret too."""

PERMISSION = "realm.webhooks.write"


def create(
    connection: Connection,
    cause: Cause,
    keyring: Keyring,
    *,
    name: str,
    url: str,
    organization_id: str | None = None,
    allow_private_network: bool = False,
) -> tuple[str, str]:
    """A new, active subscription. Returns its id and its secret, which nobody can read again.

    Raises Refused (`forbidden`, `not_found`, `conflict`; `invalid_destination` with the rule that the URL breaks).
    """
    actor = actor_of(cause)
    wanted = Wanted(authority_of={actor})
    if organization_id is not None:
        wanted.organizations.add((cause.realm_id, organization_id))
    facts = load_facts(connection, wanted)
    allow(authority_of(facts, actor), PERMISSION)
    if organization_id is not None:
        require_active(facts, (cause.realm_id, organization_id))
    try:
        Destination.parse(url, allow_private=allow_private_network)
    except Refused as refusal:
        raise Refused(refusal.category, refusal.message, "url") from None
    subscription_id, secret = ids.new(ids.Prefix.SUBSCRIPTION), new_secret()
    statements.insert_subscription(
        connection,
        {
            "realm_id": cause.realm_id,
            "id": subscription_id,
            "name": name,
            "organization_id": organization_id,
            "url": url,
            "allow_private_network": allow_private_network,
            "secret": keyring.encrypt(secret, bound_to=(cause.realm_id, subscription_id)),
        },
    )
    details = {"organization_id": organization_id, "allow_private_network": allow_private_network}
    _record(connection, cause, subscription_id, "created", details)
    return subscription_id, secret


def rotate_secret(connection: Connection, cause: Cause, keyring: Keyring, subscription_id: str) -> str:
    """A new secret in place of the present one, which goes on signing beside it for 24 hours. Returns it.

    Rotated again within that time, the older of the two goes at once. Raises Refused (`forbidden`, `not_found`).
    """
    row = _locked(connection, cause, subscription_id)
    secret = new_secret()
    until = now(connection) + OVERLAP
    values = {
        "secret": keyring.encrypt(secret, bound_to=(cause.realm_id, subscription_id)),
        "previous_secret": row.secret,
        "previous_until": until,
    }
    statements.update_subscription(connection, cause.realm_id, subscription_id, values)
    _record(connection, cause, subscription_id, "secret_rotated", {"previous_until": until.isoformat()})
    return secret


def change_state(connection: Connection, cause: Cause, subscription_id: str, event: str) -> bool:
    """`pause`, `resume` or `disable` a subscription. Returns whether that changed anything.

    While it is paused calls wait; while it is disabled they fail. Raises Refused (`forbidden`, `not_found`, `conflict`).
    """
    row = _locked(connection, cause, subscription_id)
    if any(event == known and row.state == to for _, known, to in SUBSCRIPTION.rows):
        return False
    try:
        state = SUBSCRIPTION.move(row.state, event)
    except IllegalTransition:
        raise Refused("conflict", f"the subscription is {row.state}") from None
    statements.update_subscription(connection, cause.realm_id, subscription_id, {"state": state})
    _record(connection, cause, subscription_id, _AUDITED[event], {})
    return True


def delete(connection: Connection, cause: Cause, subscription_id: str) -> None:
    """From then on the subscription is not there, and calls to it fail. Nothing is kept that would open an endpoint: no secret,
    and no URL. Raises Refused (`forbidden`, `not_found`)."""
    row = _locked(connection, cause, subscription_id)
    state = SUBSCRIPTION.move(row.state, "delete")
    values = {"state": state, "url": None, "secret": None, "previous_secret": None, "previous_until": None}
    statements.update_subscription(connection, cause.realm_id, subscription_id, values)
    _record(connection, cause, subscription_id, "deleted", {})


def _locked(connection: Connection, cause: Cause, subscription_id: str) -> Row[Any]:
    actor = actor_of(cause)
    facts = load_facts(connection, Wanted(authority_of={actor}))
    allow(authority_of(facts, actor), PERMISSION)
    row = statements.lock_subscription(connection, cause.realm_id, subscription_id)
    if row is None:
        raise Refused("not_found", "this webhook subscription does not exist")
    return row


def _record(
    connection: Connection, cause: Cause, subscription_id: str, what: str, details: Mapping[str, object]
) -> None:
    ledger = Ledger()
    target = ("webhook_subscription", subscription_id)
    ledger.add([audit(cause, f"webhook.subscription.{what}", target, details)])
    ledger.write(connection)
