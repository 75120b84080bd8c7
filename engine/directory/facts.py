"""What a decision may know of the directory: a snapshot under locks, brought up to date as the decisions of a batch are made.

The lock of all that a user holds is the user's row. Whoever wants to change it names the user in `changing`; whoever only
relies on it (a publisher's authority) names the user in `authority_of`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

Key = tuple[str, str]
"""A realm's id and the id of a thing in it."""


@dataclass(frozen=True, slots=True)
class UserFact:
    id: str
    kind: str
    state: str

    @property
    def can_be_subject(self) -> bool:
        """Deleted users are history."""
        return self.state != "deleted"

    @property
    def can_approve(self) -> bool:
        """Guests and users who are not active decide nothing (source: "Separation of duties")."""
        return self.state == "active" and self.kind == "member"


@dataclass(frozen=True, slots=True)
class OrganizationFact:
    id: str
    state: str


@dataclass(frozen=True, slots=True)
class RoleFact:
    id: str
    name: str
    boundary: str
    permissions: frozenset[str]
    requires_approval: bool
    built_in: bool

    @property
    def owns_organization(self) -> bool:
        """Whether this is the realm's built-in role of organization owners."""
        return self.built_in and self.name == "org-owner"


@dataclass(frozen=True, slots=True)
class GroupFact:
    id: str
    organization_id: str
    parent_id: str | None
    role_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AssignmentFact:
    id: str
    user_id: str
    role_id: str
    scope: str
    organization_id: str | None
    expires_at: datetime | None
    step_key: str | None


@dataclass(frozen=True, slots=True)
class GroupMemberFact:
    group_id: str
    user_id: str
    organization_id: str
    expires_at: datetime | None
    step_key: str | None


@dataclass(frozen=True, slots=True)
class PrincipalFact:
    id: str
    name: str
    state: str
    role_ids: frozenset[str]


@dataclass(slots=True)
class Wanted:
    """What the decisions of a batch will ask for. Loaded with one statement a kind."""

    changing: set[Key] = field(default_factory=set)
    watching: set[Key] = field(default_factory=set)
    authority_of: set[Key] = field(default_factory=set)
    organizations: set[Key] = field(default_factory=set)
    ownership: set[tuple[str, str, str | None]] = field(default_factory=set)
    """Realm, organization and role that may be taken from someone: if it is the owner role, the owners are counted under
    the organization's lock. Without a role: whatever the users to be changed hold in that organization."""
    owners_of: set[Key] = field(default_factory=set)
    roles: set[Key] = field(default_factory=set)
    groups: set[Key] = field(default_factory=set)
    changing_groups: set[Key] = field(default_factory=set)
    """Groups whose roles are to be changed."""
    changing_principals: set[Key] = field(default_factory=set)
    """Service principals. The roles they hold are loaded with them."""


@dataclass(slots=True)
class Facts:
    """The snapshot. `now` is the database's clock when its last lock was held; nothing else tells a decision the time."""

    now: datetime
    users: dict[Key, UserFact] = field(default_factory=dict)
    organizations: dict[Key, OrganizationFact] = field(default_factory=dict)
    roles: dict[Key, RoleFact] = field(default_factory=dict)
    groups: dict[Key, GroupFact] = field(default_factory=dict)
    memberships: dict[Key, set[str]] = field(default_factory=dict)
    """By user: the organizations the user is a member of."""
    assignments: dict[Key, dict[tuple[str, str | None], AssignmentFact]] = field(default_factory=dict)
    """By user: what the user holds directly, by role and organization. Expired ones are in it."""
    group_members: dict[Key, dict[str, GroupMemberFact]] = field(default_factory=dict)
    """By user: the groups the user is in. Expired ones are in it."""
    owners: dict[Key, set[str]] = field(default_factory=dict)
    """By organization: the users who hold its owner role directly and now."""
    principals: dict[Key, PrincipalFact] = field(default_factory=dict)

    def live(self, expires_at: datetime | None) -> bool:
        """Whether something with this expiry still counts. It stops at the moment itself."""
        return expires_at is None or expires_at > self.now

    def assignment(self, user: Key, role_id: str, organization_id: str | None) -> AssignmentFact | None:
        """The user's assignment of the role in that scope, expired or not."""
        return self.assignments.get(user, {}).get((role_id, organization_id))

    def group_member(self, user: Key, group_id: str) -> GroupMemberFact | None:
        """The user's place in the group, expired or not."""
        return self.group_members.get(user, {}).get(group_id)

    def is_member(self, user: Key, organization_id: str) -> bool:
        """Whether the user is a member of the organization."""
        return organization_id in self.memberships.get(user, ())

    def granted_by(self, group: Key) -> list[RoleFact]:
        """The roles that a group gives: its own and those of all its ancestors."""
        realm_id, found, seen = group[0], [], set[str]()
        at: str | None = group[1]
        while at is not None and at not in seen:
            seen.add(at)
            fact = self.groups.get((realm_id, at))
            if fact is None:
                break
            found += [self.roles[realm_id, role_id] for role_id in fact.role_ids if (realm_id, role_id) in self.roles]
            at = fact.parent_id
        return found
