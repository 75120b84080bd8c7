"""Ways to lose the authority that a run rests on, each as a person may bring it about by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import Connection

from db.statements.runs import now
from engine.core.trail import Cause
from engine.directory.commands import assignments, groups, organizations, users

IN_AN_ORGANIZATION = ("assign_role", "remove_role", "add_to_group", "remove_from_group", "remove_membership")
WITH_A_RIGHT = (*IN_AN_ORGANIZATION, "suspend_user", "call_webhook")
ACTING = (*WITH_A_RIGHT, "notify", "end")
"""Types of steps that have an effect. Those before `notify` take a right of their own, the first five one that may be held
in an organization alone."""

SOON = timedelta(milliseconds=20)
"""Ahead of the database's clock: what is made to expire then does so while the test is at it."""


@dataclass
class Case:
    """A run, and what its publisher is about to lose."""

    kind: str
    way: str
    after: bool = False
    """Whether the step comes second, behind one that can be undone."""
    spare: bool = False
    """Whether the publisher holds everything once more, so that losing it changes nothing."""
    publisher: str = ""
    subject: str = ""
    publish: str = ""
    """The assignment that lets the publisher publish."""
    rights: str = ""
    """The assignment that covers the step, if it is one."""
    team: str = ""
    """The group of the publisher whose parent grants what covers the step, if it is that."""
    parent: str = ""
    run: str = ""
    soon: timedelta = SOON
    """How far ahead of the clock what it rests on is made to expire."""

    def __str__(self) -> str:
        return f"{self.run} ({self.kind}{', second' if self.after else ''}; {self.way})"


@dataclass(frozen=True)
class Where:
    """Whose authority goes, and on whose account."""

    cause: Cause
    sales: str
    org_rights: str


Lose = Callable[[Connection, Where, Case], object]


def _expire(connection: Connection, where: Where, case: Case, assignment_id: str) -> None:
    assignments.extend(connection, where.cause, assignment_id, now(connection) + case.soon)


@dataclass(frozen=True)
class Way:
    """`through`: how the publisher holds what covers the step: in the realm, in the organization, or by a group of it."""

    kinds: tuple[str, ...]
    through: str
    lose: Lose


WAYS: dict[str, Way] = {
    "the right to publish is revoked": Way(
        ACTING, "realm", lambda c, where, case: assignments.revoke(c, where.cause, case.publish)
    ),
    "the right to publish expires": Way(ACTING, "realm", lambda c, where, case: _expire(c, where, case, case.publish)),
    "the publisher is suspended": Way(
        ACTING, "realm", lambda c, where, case: users.suspend(c, where.cause, case.publisher)
    ),
    "the right to the step is revoked": Way(
        WITH_A_RIGHT, "realm", lambda c, where, case: assignments.revoke(c, where.cause, case.rights)
    ),
    "the right to the step expires": Way(
        WITH_A_RIGHT, "realm", lambda c, where, case: _expire(c, where, case, case.rights)
    ),
    "the publisher leaves the organization, and a role with it": Way(
        IN_AN_ORGANIZATION,
        "organization",
        lambda c, where, case: organizations.remove_member(c, where.cause, where.sales, case.publisher),
    ),
    "the publisher leaves the organization, and a group with it": Way(
        IN_AN_ORGANIZATION,
        "group",
        lambda c, where, case: organizations.remove_member(c, where.cause, where.sales, case.publisher),
    ),
    "the publisher leaves the group": Way(
        IN_AN_ORGANIZATION,
        "group",
        lambda c, where, case: groups.remove_member(c, where.cause, case.team, case.publisher),
    ),
    "the group's parent grants the role no longer": Way(
        IN_AN_ORGANIZATION,
        "group",
        lambda c, where, case: groups.take_role(c, where.cause, case.parent, where.org_rights),
    ),
}

PAIRS = [(kind, way) for way, each in WAYS.items() for kind in each.kinds]
"""What is done, and what is lost: every combination that there is."""
