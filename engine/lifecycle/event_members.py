"""The members of events as an outside directory reports them: for each type those that belong to it, and no other.

A member of another type is unknown, and one that is missing is required, as in definitions.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from pydantic import Field, ValidatorFunctionWrapHandler, WrapValidator

from engine.core.ids import GroupId, OrganizationId, RoleId, UserId
from engine.lifecycle.members import Members
from engine.lifecycle.trigger_members import EventType

FieldName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,39}$", examples=["display_name"])]
"""What a member of a user is called: one short word, and nothing of what it holds."""


class ReceivedEvent(Members):
    """What every event has: its type, and the user it is about."""

    type: EventType
    user_id: UserId

    @property
    def payload(self) -> dict[str, Any]:
        """What it says beside its type and its user: identifiers, and for `user.updated` the names of what was changed."""
        return self.model_dump(exclude={"type", "user_id"})


class UserEvent(ReceivedEvent):
    """Something happened to a user."""

    type: Literal["user.created", "user.suspended", "user.reactivated"]


class UserUpdated(ReceivedEvent):
    """Members of a user were changed: these."""

    type: Literal["user.updated"]
    changed_fields: Annotated[list[FieldName], Field(min_length=1, max_length=20)]


class MembershipEvent(ReceivedEvent):
    """A membership of an organization began or ended."""

    type: Literal["organization.membership.added", "organization.membership.removed"]
    organization_id: OrganizationId


class GroupMembershipEvent(ReceivedEvent):
    """A user's place in a group of an organization began or ended."""

    type: Literal["group.membership.added", "group.membership.removed"]
    organization_id: OrganizationId
    group_id: GroupId


class RoleAssignmentEvent(ReceivedEvent):
    """A role was given or taken: in an organization if one is named, else in the realm."""

    type: Literal["role.assignment.granted", "role.assignment.revoked", "role.assignment.expired"]
    role_id: RoleId
    organization_id: OrganizationId | None = None


MODELS: tuple[type[ReceivedEvent], ...] = (
    UserEvent,
    UserUpdated,
    MembershipEvent,
    GroupMembershipEvent,
    RoleAssignmentEvent,
)

_BY_TYPE: dict[object, type[ReceivedEvent]] = {
    type_: model for model in MODELS for type_ in get_args(model.model_fields["type"].annotation)
}


def _as_its_type_has_it(value: object, _: ValidatorFunctionWrapHandler) -> ReceivedEvent:
    """What pydantic's own union would do, but that the paths of its faults name the branch. Of a type that is not known, all
    that can be said is what every event has."""
    type_ = value.get("type") if isinstance(value, dict) else None
    model = _BY_TYPE.get(type_, ReceivedEvent) if isinstance(type_, str) else ReceivedEvent
    return model.model_validate(value)


AnyEvent = Annotated[
    UserEvent | UserUpdated | MembershipEvent | GroupMembershipEvent | RoleAssignmentEvent,
    Field(discriminator="type"),
    WrapValidator(_as_its_type_has_it),
]
"""An event of a listed type."""
