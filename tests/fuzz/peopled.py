"""A realm with a lot of everything that can be named, in every state it can be in; and another one beside it."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime, timedelta

from engine.lifecycle import activation, revisions, runs
from engine.lifecycle.worker import Worker
from tests.definitions import Json, definition, event, schedule, step
from tests.driver import drain, many_runs, owner, rows
from tests.everything import everything
from tests.factories import TestRealm, a_realm
from tests.fuzz.known import Known, flat

NOWHERE = "https://hooks.invalid/a"
"""RFC 2606: no name server knows it."""


def peopled(realm: TestRealm, worker: Worker, pending: int) -> tuple[Known, str]:
    """Fill the realm, with so many approvals about each user. Returns what exists, and the user who is asked to decide."""
    known, approver = Known(realm.id), realm.user("approver")
    known.untouchable |= {realm.admin, approver}
    _directory(realm, known)
    _workflows(realm, known, approver, pending)
    drain(worker, realm, within=60)
    _cancelled(realm)
    drain(worker, realm, within=60)
    owner(realm.database, _SET_ASIDE, realm=realm.id)
    _look(realm, known)
    neighbour = a_realm(realm.database)
    known.add_elsewhere(*(id_ for id_ in asdict(everything(neighbour)).values() if id_ != "1"), neighbour.id)
    return known, approver


def _directory(realm: TestRealm, known: Known) -> None:
    users = flat(realm.users(30), [realm.user(state="suspended") for _ in range(3)])
    guests = [realm.user(kind="guest") for _ in range(3)]
    organizations = [realm.organization(None, *users[index * 8 : index * 8 + 12]) for index in range(3)]
    known.add(*organizations, realm.organization(None, users[0], state="archived"))
    for boundary in ("realm", "organization"):
        permissions = ["org.members.read"] if boundary == "organization" else ["realm.users.read"]
        made = [realm.role(None, *permissions, boundary=boundary) for _ in range(4)]
        strict = realm.role(None, boundary=boundary, requires_approval=True)
        known.add(*made, strict, kind=boundary)
        for index, user_id in enumerate(users[:10]):
            scope = organizations[0] if boundary == "organization" else None
            expires_at = datetime.now(UTC) + timedelta(days=30) if index % 3 == 0 else None
            known.add(realm.grant(user_id, made[index % 4], scope, expires_at=expires_at))
    for name, kind in (("realm-auditor", "realm"), ("org-owner", "organization"), ("org-admin", "organization")):
        known.add(realm.roles[name], kind=kind)
    known.add(realm.grant(users[0], realm.roles["org-owner"], organizations[0]))
    known.add(*users, *guests)
    _groups(realm, known, organizations, users)
    known.add(*(realm.subscription(NOWHERE, state=state) for state in ("active", "active", "paused", "disabled")))
    known.add(realm.subscription(NOWHERE, organization_id=organizations[0]))
    for state in ("active", "active", "disabled"):
        known.add(realm.principal(known.here["rol/realm"][0], state=state))


def _groups(realm: TestRealm, known: Known, organizations: list[str], users: list[str]) -> None:
    roles = known.here["rol/organization"]
    for index, organization_id in enumerate(organizations):
        members = users[index * 8 : index * 8 + 12]
        above = realm.group(organization_id, roles=roles[:4], members=members[:6])
        below = realm.group(organization_id, parent=above, roles=roles[:4], members=members)
        known.add(above, below)
        known.together["group_id", "user_id"] += [(below, user_id) for user_id in members[6:]]
        known.together["group_id", "role_id"] += [(group, role) for group in (above, below) for role in roles[:4]]
        known.together["organization_id", "user_id"] += [(organization_id, user_id) for user_id in members[:6]]


def _workflows(realm: TestRealm, known: Known, approver: str, pending: int) -> None:
    subjects, organization_id = known.here["usr"][:30], known.here["org"][0]
    for name, steps in _definitions(known, approver).items():
        value = definition(*steps, triggers=[{"type": "manual"}, *_triggers(name, known)])
        workflow_id = realm.published(value, name)
        known.add(workflow_id)
        many_runs(realm, workflow_id, subjects[:4] if name != "asking" else subjects * pending, organization_id)
        for _ in range(2):
            _publish(realm, workflow_id, realm.revision(workflow_id, value))
        realm.revision(workflow_id, value)
        if name in ("undoing", "stuck"):
            with realm.database.begin() as connection:
                activation.disable(connection, realm.cause, workflow_id)
    other = realm.holder(realm.roles["realm-admin"])
    known.untouchable.add(other)
    for _ in range(24):
        draft = realm.workflow()
        known.add(draft)
        for author in (realm.admin, other, other, other):
            realm.revision(draft, definition(step("end")), author=author)
    known.add(realm.workflow(), *(realm.workflow(requires_approval=True) for _ in range(2)))


def _definitions(known: Known, approver: str) -> dict[str, list[Json]]:
    """By what becomes of their runs."""
    role_id, group_id, hook = known.here["rol/organization"][0], known.here["grp"][-1], known.here["whk"][0]
    grant = step("assign_role", id="grant", role_id=role_id, organization_id=...)
    call = step("call_webhook", id="call", subscription_id=hook, timeout_ms=100)
    return {
        "ending": [step("end")],
        "waiting": [grant, step("wait", id="rest", **{"for": "8760h"})],
        "asking": [step("approval", approvers=[approver]), step("end", id="b")],
        "retrying": [grant, {**call, "retry": {"max_attempts": 5, "backoff": "1h"}}],
        "failing": [{**call, "retry": {"max_attempts": 1, "backoff": "1s"}}],
        "undoing": [grant, step("add_to_group", id="join", group_id=group_id, organization_id=...)],
        "stuck": [step("notify", id="tell"), step("suspend_user", id="stop")],
        "event": [step("remove_role", id="take", role_id=role_id, scope="organization")],
    }


def _triggers(name: str, known: Known) -> list[Json]:
    organization_id, role_id = known.here["org"][0], known.here["rol/organization"][0]
    if name == "event":
        fired = schedule("role_holders", every="1h", role_id=role_id, organization_id=organization_id)
        return [event("user.created", "user.updated", "organization.membership.added"), fired]
    return [event("user.suspended", organization_id=organization_id)] if name == "ending" else []


def _publish(realm: TestRealm, workflow_id: str, number: int) -> None:
    with realm.database.begin() as connection:
        revisions.publish(connection, realm.cause, workflow_id, number)


def _cancelled(realm: TestRealm) -> None:
    found = rows(realm.database, "SELECT id FROM workflow_runs WHERE realm_id = :r AND state = 'waiting'", r=realm.id)
    for row in found[:2]:
        with realm.database.begin() as connection:
            runs.cancel(connection, realm.cause, row.id)


_SET_ASIDE = """
UPDATE outbox_events
SET dispatched_at = NULL, set_aside_at = clock_timestamp(), attempts = 10, last_error = 'DataError'
WHERE realm_id = :realm AND id > (SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY id) FROM outbox_events)
"""
"""The later half of the events, as if they had failed ten times."""

_TABLES = ("workflow_runs", "workflow_approvals", "outbox_events")


def _look(realm: TestRealm, known: Known) -> None:
    """What the engine made."""
    for name in _TABLES:
        query = f"SELECT id FROM {name} WHERE realm_id = :r ORDER BY id LIMIT 400"
        known.add(*(row.id for row in rows(realm.database, query, r=realm.id)))
    numbers = "SELECT workflow_id, number FROM workflow_revisions WHERE realm_id = :r ORDER BY workflow_id, number"
    known.together["workflow_id", "number"] += [
        (row.workflow_id, str(row.number)) for row in rows(realm.database, numbers, r=realm.id)
    ]
    held = "SELECT id FROM role_assignments WHERE realm_id = :r AND user_id = :u"
    known.untouchable |= {row.id for row in rows(realm.database, held, r=realm.id, u=realm.admin)}
