"""What a user may do, and that nobody gives what they do not hold: for whatever roles there are, however they are held.

What a user holds is told here a second time, in the plainest way: as pairs of a scope and a permission of the catalogue, with
every wildcard written out.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.core.errors import Refused
from engine.directory.authority import Authority, authority_of, require, require_ceiling, require_group_ceiling
from engine.directory.facts import AssignmentFact, Facts, GroupFact, GroupMemberFact, RoleFact, UserFact
from engine.directory.permissions import BUILT_IN, CATALOGUE, WILDCARDS, covers, is_permission

REALM, ADA = "rlm_a", "usr_ada"
NOW = datetime(2026, 10, 11, 9, tzinfo=UTC)
SCOPES = (None, "org_a", "org_b")
TEAMS = {"grp_a": "org_a", "grp_b": "org_b"}

Held = frozenset[tuple[str | None, str]]


def written_out(permissions: frozenset[str]) -> set[str]:
    """The permissions of the catalogue that these are."""
    families = [each.removesuffix("*") for each in permissions if each.endswith("*")]
    return {each for each in CATALOGUE if each in permissions or any(each.startswith(family) for family in families)}


@dataclass(frozen=True)
class World:
    """Facts about Ada, and what she holds by them."""

    facts: Facts
    held: Held

    @property
    def authority(self) -> Authority:
        return authority_of(self.facts, (REALM, ADA))

    def holds(self, permission: str, organization_id: str | None) -> bool:
        """In the realm, or there."""
        return bool({(None, permission), (organization_id, permission)} & self.held)


def role(number: int, permissions: frozenset[str]) -> RoleFact:
    return RoleFact(f"rol_{number}", f"role {number}", "realm", permissions, False, False)


some_worlds = settings(max_examples=150, deadline=None)
"""Enough to find the faults that were planted in the ceiling to try it."""

moments = st.sampled_from([None, None, NOW + timedelta(seconds=1), NOW, NOW - timedelta(days=1)])
NAMES = (*CATALOGUE, *sorted(WILDCARDS))
few = st.frozensets(st.sampled_from(NAMES), max_size=2)
many = st.integers(0, 2 ** len(CATALOGUE) - 1).map(
    lambda bits: frozenset(name for at, name in enumerate(CATALOGUE) if bits >> at & 1)
)
sets = st.one_of(few, many)


def gifts(world: World, scope: str | None) -> st.SearchStrategy[frozenset[str]]:
    """What Ada may try to give: a little of what she holds there, with something else or without, or anything."""
    held = sorted({name for where, name in world.held if where in (None, scope)}) or NAMES
    some = st.frozensets(st.sampled_from(held), max_size=3)
    return st.one_of(some, some, st.builds(frozenset.union, some, few), sets)


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Roles that Ada holds in the realm, in organizations, and by groups that inherit from others, some of them no more."""
    strong = draw(many) | {"realm.roles.assign", "org.roles.assign", "org.groups.write"}
    roles = [role(number, each) for number, each in enumerate((strong, *draw(st.lists(sets, max_size=4))))]
    state = draw(st.sampled_from([*["active"] * 8, "suspended", "deleted"]))
    facts = Facts(NOW, {(REALM, ADA): UserFact(ADA, "member", state)}, roles={(REALM, each.id): each for each in roles})
    held: set[tuple[str | None, str]] = set()
    some = st.sampled_from(roles)
    mine: dict[tuple[str, str | None], AssignmentFact] = {}
    for number, (each, scope, until) in enumerate(
        draw(st.lists(st.tuples(some, st.sampled_from(SCOPES), moments), min_size=1, max_size=4))
    ):
        kind = "realm" if scope is None else "organization"
        mine[each.id, scope] = AssignmentFact(f"ras_{number}", ADA, each.id, kind, scope, until, None)
    for assignment in mine.values():
        if assignment.expires_at is None or assignment.expires_at > NOW:
            held |= {
                (assignment.organization_id, each)
                for each in written_out(facts.roles[REALM, assignment.role_id].permissions)
            }
    facts.assignments[REALM, ADA] = mine
    memberships: dict[str, GroupMemberFact] = {}
    for team, organization_id in TEAMS.items():
        above, own = draw(st.lists(some, max_size=2, unique=True)), draw(st.lists(some, max_size=2, unique=True))
        parent = f"{team}_parent"
        facts.groups[REALM, parent] = GroupFact(parent, organization_id, None, tuple(each.id for each in above))
        facts.groups[REALM, team] = GroupFact(team, organization_id, parent, tuple(each.id for each in own))
        joined, until = draw(st.booleans()), draw(moments)
        if joined:
            memberships[team] = GroupMemberFact(team, ADA, organization_id, until, None)
            if until is None or until > NOW:
                held |= {(organization_id, name) for each in (*above, *own) for name in written_out(each.permissions)}
    facts.group_members[REALM, ADA] = memberships
    return World(facts, frozenset(held if state == "active" else ()))


def passes(check: Any, *given: Any) -> str | None:
    """The category of the refusal; None when there is none."""
    try:
        check(*given)
    except Refused as refused:
        return refused.category
    return None


@some_worlds
@given(worlds())
def test_what_is_held_is_what_live_roles_and_live_groups_with_their_ancestors_give(world: World) -> None:
    authority = world.authority
    for scope in SCOPES:
        for permission in CATALOGUE:
            assert authority.holds(permission, scope) == world.holds(permission, scope)
            refusal = passes(require, authority, permission, scope)
            assert refusal == (None if world.holds(permission, scope) else "forbidden")


@some_worlds
@given(worlds(), st.sampled_from(SCOPES), st.data())
def test_nobody_gives_a_permission_that_they_do_not_hold_at_that_scope(
    world: World, scope: str | None, data: st.DataObject
) -> None:
    permissions = data.draw(gifts(world, scope))
    for kind, needed in assigning(scope):
        if passes(require_ceiling, world.authority, role(9, permissions), kind, scope) is None:
            assert {each for each in written_out(permissions) if not world.holds(each, scope)} == set()
            assert world.holds(needed, scope)


@some_worlds
@given(worlds(), st.sampled_from(SCOPES), st.data())
def test_whoever_holds_all_that_a_role_has_and_may_assign_roles_gives_it(
    world: World, scope: str | None, data: st.DataObject
) -> None:
    permissions = data.draw(gifts(world, scope)) - WILDCARDS
    for kind, needed in assigning(scope):
        expected = None if all(world.holds(each, scope) for each in permissions) else "grant_ceiling_exceeded"
        if not world.holds(needed, scope):
            expected = "forbidden"
        assert passes(require_ceiling, world.authority, role(9, permissions), kind, scope) == expected


def assigning(scope: str | None) -> list[tuple[str, str]]:
    """Where a role may be given with authority at that scope, and what that takes. None is the realm, and any organization."""
    in_one = [("organization", "org.roles.assign")]
    return in_one if scope else [("realm", "realm.roles.assign"), *in_one]


@some_worlds
@given(worlds(), st.sampled_from(sorted(TEAMS)), st.sampled_from(SCOPES))
def test_nobody_lets_another_into_a_group_that_gives_more_than_they_hold(
    world: World, team: str, scope: str | None
) -> None:
    granted = [
        world.facts.roles[REALM, id_]
        for of in (team, f"{team}_parent")
        for id_ in world.facts.groups[REALM, of].role_ids
    ]
    assert {each.id for each in world.facts.granted_by((REALM, team))} == {each.id for each in granted}
    if passes(require_group_ceiling, world.authority, world.facts, (REALM, team), scope) is None:
        assert world.holds("org.groups.write", scope)
        assert granted == [] or world.holds("org.roles.assign", scope)
        assert all(world.holds(name, scope) for each in granted for name in written_out(each.permissions))


@given(sets, sets)
def test_covering_is_holding_all_of_it(held: frozenset[str], wanted: frozenset[str]) -> None:
    for one in wanted:
        if any(covers(each, one) for each in held):
            assert written_out(frozenset({one})) <= written_out(held)
        elif one in CATALOGUE:
            assert one not in written_out(held)


def test_a_wildcard_is_covered_by_itself_and_wider_ones_alone() -> None:
    assert {(held, wanted) for held in sorted(WILDCARDS) for wanted in WILDCARDS if covers(held, wanted)} == {
        ("*", "*"),
        ("*", "realm.*"),
        ("*", "org.*"),
        ("realm.*", "realm.*"),
        ("org.*", "org.*"),
    }
    everything_of_organizations = frozenset(each for each in CATALOGUE if each.startswith("org."))
    one_by_one = Authority(((None, everything_of_organizations),))
    assert (
        passes(require_ceiling, one_by_one, role(9, frozenset({"org.*"})), "organization", "org_a")
        == "grant_ceiling_exceeded"
    )


def test_a_group_that_is_its_own_ancestor_grants_each_role_once() -> None:
    facts = Facts(NOW, roles={(REALM, "rol_0"): role(0, frozenset({"org.members.read"}))})
    for team, parent in (("grp_a", "grp_b"), ("grp_b", "grp_a")):
        facts.groups[REALM, team] = GroupFact(team, "org_a", parent, ("rol_0",) if team == "grp_a" else ())
    assert [each.id for each in facts.granted_by((REALM, "grp_b"))] == ["rol_0"]


def test_the_built_in_roles_hold_what_the_specification_says() -> None:
    assert {each.name: (each.boundary, written_out(frozenset(each.permissions))) for each in BUILT_IN} == {
        "realm-admin": ("realm", set(CATALOGUE)),
        "realm-auditor": ("realm", {"realm.workflows.read", "realm.audit.read"}),
        "org-owner": ("organization", {each for each in CATALOGUE if each.startswith("org.")}),
        "org-admin": (
            "organization",
            {"org.members.read", "org.members.write", "org.groups.read", "org.groups.write"},
        ),
    }


@pytest.mark.parametrize("value", [*CATALOGUE, *sorted(WILDCARDS)])
def test_what_is_in_the_catalogue_may_stand_in_a_role(value: str) -> None:
    assert is_permission(value)


@pytest.mark.parametrize(
    "value", ["", "realm", "org.", "realm.users.*", "*.*", "realm.**", "org.members.write\n", "ORG.*"]
)
def test_nothing_else_may(value: str) -> None:
    assert not is_permission(value)
