"""The one statement that answers questions and the facts that decide effects tell the same authority."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from db.session import Database
from db.statements.reads_authority import standing
from engine.directory.authority import authority_of
from engine.directory.facts import Wanted
from engine.directory.load import load_facts
from engine.directory.permissions import CATALOGUE
from tests.driver import owner
from tests.factories import TestRealm, a_realm


@pytest.fixture(scope="module")
def acme(module_database: Database) -> TestRealm:
    return a_realm(module_database)


def held(acme: TestRealm, user_id: str) -> tuple[set[tuple[str | None, str]], set[tuple[str | None, str]]]:
    """What the user may do, as the statement says and as the facts say: pairs of scope and permission."""
    with acme.database.begin() as connection:
        rows = standing(connection, acme.id, user_id)
        facts = load_facts(connection, Wanted(authority_of={acme.key(user_id)}))
        decided = authority_of(facts, acme.key(user_id))
    told = {(row.organization_id, each) for row in rows if row.state == "active" for each in row.permissions or ()}
    return told, {(scope, each) for scope, permissions in decided.grants for each in permissions}


def test_roles_groups_and_their_ancestors_count_until_they_expire(acme: TestRealm) -> None:
    ada = acme.user()
    sales, other = acme.organization(None, ada), acme.organization(None, ada)
    roles = {name: acme.role(None, name) for name in CATALOGUE if name.startswith("org.")}
    top = acme.group(sales, roles=[roles["org.members.read"]])
    middle = acme.group(sales, parent=top, roles=[roles["org.members.write"]])
    leaf = acme.group(sales, parent=middle)
    acme.group(sales, parent=leaf, roles=[roles["org.roles.assign"]])
    acme.join(ada, leaf)
    acme.grant(ada, roles["org.groups.read"], other)
    acme.grant(ada, acme.role(None, "realm.users.read", boundary="realm"))
    expected = {
        (sales, "org.members.read"),
        (sales, "org.members.write"),
        (other, "org.groups.read"),
        (None, "realm.users.read"),
    }
    assert held(acme, ada) == (expected, expected)

    soon = datetime.now(UTC) + timedelta(hours=1)
    acme.grant(ada, roles["org.groups.write"], other, expires_at=soon)
    late = acme.group(other, roles=[roles["org.roles.assign"]])
    acme.join(ada, late, expires_at=soon)
    more = expected | {(other, "org.groups.write"), (other, "org.roles.assign")}
    assert held(acme, ada) == (more, more)
    for table in ("role_assignments", "group_members"):
        owner(acme.database, f"UPDATE {table} SET expires_at = clock_timestamp() WHERE expires_at IS NOT NULL")
    assert held(acme, ada) == (expected, expected)


def test_whoever_is_not_active_may_do_nothing(acme: TestRealm) -> None:
    for state in ("suspended", "deleted"):
        user = acme.user(state=state)
        acme_role = acme.role(None, "realm.*", boundary="realm")
        owner(
            acme.database,
            "INSERT INTO role_assignments (realm_id, id, role_id, user_id, scope) VALUES (:realm, :id, :role, :user, 'realm')",
            realm=acme.id,
            id=f"ras_{user[4:]}",
            role=acme_role,
            user=user,
        )
        assert held(acme, user) == (set(), set())


def test_a_user_of_another_realm_has_no_standing(acme: TestRealm, module_database: Database) -> None:
    other = a_realm(module_database)
    with module_database.begin() as connection:
        assert standing(connection, acme.id, other.admin) == []
        assert len(standing(connection, acme.id, acme.user())) == 1
