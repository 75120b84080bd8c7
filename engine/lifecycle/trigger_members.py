"""The members of triggers, which start runs, and of the selectors of schedules (lifecycle.md, "Triggers").

A trigger may be given twice. A second manual trigger adds nothing and harms nothing, and two schedules may well
overlap: a run is started once per trigger key, workflow and subject whatever the triggers say.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from engine.core.durations import Duration, between
from engine.core.ids import GroupId, OrganizationId, RoleId
from engine.lifecycle.members import UNIQUE, Items, Members

EventType = Literal[
    "user.created",
    "user.updated",
    "user.suspended",
    "user.reactivated",
    "organization.membership.added",
    "organization.membership.removed",
    "group.membership.added",
    "group.membership.removed",
    "role.assignment.granted",
    "role.assignment.revoked",
    "role.assignment.expired",
]
"""What a workflow may listen to. Sign-ins are never a trigger."""

Age = Annotated[Duration, between("1m", "87600h")]
"""How long ago something must at least have happened. The source sets no bound: a minute to ten years are ours."""


class Selector(Members):
    """Which users a schedule starts a run for."""

    type: str
    organization_id: OrganizationId | None = None


class RoleHolders(Selector):
    """Users who hold a role."""

    type: Literal["role_holders"]
    role_id: RoleId
    granted_before: Age | None = None


class GroupMembers(Selector):
    """Users in a group."""

    type: Literal["group_members"]
    group_id: GroupId
    joined_before: Age | None = None


class OrganizationMembers(Selector):
    """Users in the organization, or in any."""

    type: Literal["organization_members"]
    joined_before: Age | None = None


class InactiveUsers(Selector):
    """Users who were active once and have not been since."""

    type: Literal["inactive_users"]
    last_active_before: Age


class NeverSignedIn(Selector):
    """Users who have never been active."""

    type: Literal["never_signed_in"]
    created_before: Age


class Guests(Selector):
    """Users who are guests."""

    type: Literal["guests"]
    created_before: Age | None = None


class SuspendedUsers(Selector):
    """Users who are suspended. No other selector finds them."""

    type: Literal["suspended_users"]
    suspended_before: Age | None = None


AnySelector = Annotated[
    RoleHolders | GroupMembers | OrganizationMembers | InactiveUsers | NeverSignedIn | Guests | SuspendedUsers,
    Field(discriminator="type"),
]


class EventMembers(Members):
    """Starts a run for an event's user."""

    type: Literal["event"]
    event_types: Annotated[tuple[EventType, ...], *UNIQUE, Items(1, 10)]
    organization_id: OrganizationId | None = None

    @property
    def pinned_organization(self) -> str | None:
        """The organization that every run of this trigger has, if the definition says which."""
        return self.organization_id


class ScheduleMembers(Members):
    """Starts a run for each selected user, once a slot."""

    type: Literal["schedule"]
    every: Annotated[Duration, between("1h", "8760h", "1s")]
    """Whole seconds, as slots are counted in them."""
    select: AnySelector

    @property
    def pinned_organization(self) -> str | None:
        """The organization that every run of this trigger has, if the definition says which."""
        return self.select.organization_id


class ManualMembers(Members):
    """Starts a run for the user an administrator names."""

    type: Literal["manual"]

    @property
    def pinned_organization(self) -> None:
        """A manual start brings its own organization, or none."""
        return


AnyTrigger = Annotated[EventMembers | ScheduleMembers | ManualMembers, Field(discriminator="type")]
