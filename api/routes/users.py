"""Users of a realm."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query

from api.auth import Caller, permitted
from api.bodies import StrictRoute
from api.paging import Page, PageQuery, page_of
from api.shapes import Answer, At, Body, Email, Name, unset
from api.transaction import Transaction
from db.statements import reads_users as reads
from engine.core.errors import Refused
from engine.core.ids import UserId
from engine.directory.commands import users

router = APIRouter(tags=["users"], route_class=StrictRoute)

UserPath = Annotated[UserId, Path(description="The user.")]
Kind = Literal["member", "guest"]


class User(Answer):
    """A user. Guests approve nothing."""

    id: str
    email: str
    display_name: str
    kind: Kind
    state: Literal["active", "suspended"]
    created_at: At
    updated_at: At
    last_active_at: At | None
    suspended_at: At | None


class NewUser(Body):
    """An active user."""

    email: Email
    display_name: Name
    kind: Kind = "member"


class UserChanges(Body):
    """What is left out stays."""

    email: Email = unset()
    display_name: Name = unset()
    kind: Kind = unset()


class UsersQuery(PageQuery):
    state: Literal["active", "suspended"] | None = None
    kind: Kind | None = None
    email: Email | None = None


@router.get("/users")
def list_users(
    caller: Annotated[Caller, permitted("realm.users.read")],
    connection: Transaction,
    query: Annotated[UsersQuery, Query()],
) -> Page[User]:
    """The users of the realm, the newest first."""
    filters = query.model_dump(exclude={"limit", "cursor"})
    return page_of(
        User,
        query,
        (caller.realm_id, "users"),
        lambda after, limit: reads.users_page(connection, caller.realm_id, after, limit, **filters),
    )


@router.post("/users", status_code=201)
def create_user(
    caller: Annotated[Caller, permitted("realm.users.write", checked_by_verb=True)],
    connection: Transaction,
    body: NewUser,
) -> User:
    """Make an active user."""
    return _shown(connection, caller, users.create(connection, caller.cause, **body.model_dump()))


@router.get("/users/{user_id}")
def get_user(
    caller: Annotated[Caller, permitted("realm.users.read")], connection: Transaction, user_id: UserPath
) -> User:
    """One user."""
    return _shown(connection, caller, user_id)


@router.patch("/users/{user_id}")
def change_user(
    caller: Annotated[Caller, permitted("realm.users.write", checked_by_verb=True)],
    connection: Transaction,
    user_id: UserPath,
    body: UserChanges,
) -> User:
    """Change address, name or kind."""
    users.update(connection, caller.cause, user_id, **body.model_dump(exclude_unset=True))
    return _shown(connection, caller, user_id)


@router.post("/users/{user_id}/suspend")
def suspend_user(
    caller: Annotated[Caller, permitted("realm.users.suspend", checked_by_verb=True)],
    connection: Transaction,
    user_id: UserPath,
) -> User:
    """Suspend an account. Suspended already: nothing changes."""
    users.suspend(connection, caller.cause, user_id)
    return _shown(connection, caller, user_id)


@router.post("/users/{user_id}/reactivate")
def reactivate_user(
    caller: Annotated[Caller, permitted("realm.users.suspend", checked_by_verb=True)],
    connection: Transaction,
    user_id: UserPath,
) -> User:
    """Make a suspended account active again. Active already: nothing changes."""
    users.reactivate(connection, caller.cause, user_id)
    return _shown(connection, caller, user_id)


def _shown(connection: Transaction, caller: Caller, user_id: str) -> User:
    row = reads.user(connection, caller.realm_id, user_id)
    if row is None:
        raise Refused("not_found", "this user does not exist")
    return User.model_validate(row)
