"""The directory by hand: what an administrator may do, what only under their ceiling, and what never."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from engine.directory.permissions import CATALOGUE
from tests.calling import Api, paths, problem
from tests.driver import owner, rows
from tests.factories import unique

LATER = "2099-01-01T00:00:00Z"


def events(api: Api, user_id: str) -> list[str]:
    """The types of the outbox events about a user."""
    query = "SELECT type FROM outbox_events WHERE realm_id = :realm AND user_id = :user ORDER BY position"
    return [row.type for row in rows(api.realm.database, query, realm=api.realm.id, user=user_id)]


# Users


def test_a_user_is_made_changed_suspended_and_reactivated(api: Api) -> None:
    made = api.post("/users", {"email": "Ada@example.org", "display_name": "Ada", "kind": "guest"})
    assert made.status_code == 201
    ada = made.json()
    assert (ada["state"], ada["kind"]) == ("active", "guest")
    assert api.get(f"/users/{ada['id']}").json() == ada
    changed = api.patch(f"/users/{ada['id']}", {"kind": "member", "display_name": "Ada L."}).json()
    assert (changed["kind"], changed["display_name"], changed["email"]) == ("member", "Ada L.", "Ada@example.org")
    assert api.post(f"/users/{ada['id']}/suspend").json()["state"] == "suspended"
    assert api.post(f"/users/{ada['id']}/suspend").json()["state"] == "suspended"
    assert api.post(f"/users/{ada['id']}/reactivate").json()["suspended_at"] is None
    assert events(api, ada["id"]) == ["user.created", "user.updated", "user.suspended", "user.reactivated"]
    (updated,) = rows(
        api.realm.database,
        "SELECT payload FROM outbox_events WHERE user_id = :id AND type = 'user.updated'",
        id=ada["id"],
    )
    assert updated.payload == {"changed_fields": ["display_name", "kind"]}


def test_a_change_that_changes_nothing_leaves_no_event(api: Api) -> None:
    ada = api.realm.user()
    before = api.get(f"/users/{ada}").json()
    assert api.patch(f"/users/{ada}", {"email": before["email"]}).json() == before
    assert api.patch(f"/users/{ada}", {}).json() == before
    assert events(api, ada) == ["user.created"]


def test_an_address_belongs_to_one_user_however_it_is_written(api: Api) -> None:
    assert api.post("/users", {"email": "bob@example.org", "display_name": "Bob"}).status_code == 201
    other = api.realm.user()
    for answer in (
        api.post("/users", {"email": "BOB@example.org", "display_name": "Bob"}),
        api.patch(f"/users/{other}", {"email": "Bob@Example.org"}),
    ):
        refused = problem(answer, 409, "conflict")
        assert [error["path"] for error in refused["errors"]] == ["email"]
    assert len(api.get("/users", email="bOb@example.org").json()["items"]) == 1


def test_a_deleted_user_is_not_there(api: Api) -> None:
    gone = api.realm.user(state="deleted")
    for answer in (
        api.get(f"/users/{gone}"),
        api.patch(f"/users/{gone}", {"display_name": "X"}),
        api.post(f"/users/{gone}/suspend"),
        api.post(f"/users/{gone}/reactivate"),
        api.post(f"/organizations/{api.realm.organization()}/members", {"user_id": gone}),
    ):
        problem(answer, 404, "not_found")


def test_users_are_found_by_state_and_kind(api: Api) -> None:
    guest, suspended = api.realm.user(kind="guest"), api.realm.user(state="suspended")
    assert guest in [user["id"] for user in api.get("/users", kind="guest").json()["items"]]
    found = [user["id"] for user in api.get("/users", state="suspended").json()["items"]]
    assert suspended in found
    assert guest not in found


def test_a_caller_who_is_suspended_or_gone_is_nobody(api: Api) -> None:
    for state in ("suspended", "deleted"):
        caller = api.by(api.realm.user(state=state))
        problem(caller.get("/users"), 401, "unauthenticated")
        problem(api.by(caller.realm.user(state=state), "account").get("/me/workflow-approvals"), 401, "unauthenticated")


# Organizations


def test_a_membership_is_added_once_and_removed_with_what_hangs_on_it(api: Api) -> None:
    sales = api.post("/organizations", {"name": unique("Sales")}).json()["id"]
    ada, role = api.realm.user(), api.realm.role()
    path = f"/organizations/{sales}/members"
    added = api.post(path, {"user_id": ada})
    assert (added.status_code, added.json()["user_id"]) == (201, ada)
    again = api.post(path, {"user_id": ada})
    assert (again.status_code, again.json()) == (200, added.json())
    team = api.realm.group(sales, members=[ada])
    api.realm.grant(ada, role, sales)
    assert [member["user_id"] for member in api.get(path).json()["items"]] == [ada]
    assert api.delete(f"{path}/{ada}").status_code == 204
    problem(api.delete(f"{path}/{ada}"), 404, "not_found")
    assert api.get(f"/groups/{team}/members").json()["items"] == []
    assert api.get("/role-assignments", user_id=ada).json()["items"] == []
    assert events(api, ada)[-3:] == [
        "group.membership.removed",
        "role.assignment.revoked",
        "organization.membership.removed",
    ]


def test_the_last_owner_stays(api: Api) -> None:
    sales, ada, eve = api.realm.organization(), api.realm.user(), api.realm.user()
    api.realm.add_members(sales, [ada, eve])
    assignment = api.realm.grant(ada, api.realm.roles["org-owner"], sales)
    for answer in (api.delete(f"/organizations/{sales}/members/{ada}"), api.delete(f"/role-assignments/{assignment}")):
        problem(answer, 409, "conflict")
    api.realm.grant(eve, api.realm.roles["org-owner"], sales)
    assert api.delete(f"/role-assignments/{assignment}").status_code == 204


def test_an_archived_organization_takes_nobody(api: Api) -> None:
    old = api.realm.organization(state="archived")
    problem(api.post(f"/organizations/{old}/members", {"user_id": api.realm.user()}), 409, "conflict")
    assert old in [each["id"] for each in api.get("/organizations", state="archived").json()["items"]]


def test_whoever_runs_one_organization_runs_no_other(api: Api) -> None:
    sales, other = api.realm.organization(), api.realm.organization()
    runner = api.by(api.realm.holder(api.realm.roles["org-admin"], sales))
    ada = api.realm.user()
    assert runner.post(f"/organizations/{sales}/members", {"user_id": ada}).status_code == 201
    assert runner.get(f"/organizations/{sales}/members").status_code == 200
    for answer in (
        runner.get(f"/organizations/{other}/members"),
        runner.post(f"/organizations/{other}/members", {"user_id": ada}),
        runner.delete(f"/organizations/{other}/members/{ada}"),
        runner.get("/organizations"),
        runner.get("/groups"),
        runner.get("/groups", organization_id=other),
        runner.post("/groups", {"organization_id": other, "name": "x"}),
        runner.get(f"/groups/{api.realm.group(other)}"),
    ):
        refused = problem(answer, 403, "forbidden")
        assert other not in str(refused)
    assert runner.get("/groups", organization_id=sales).status_code == 200


# Groups


def test_a_group_is_made_under_a_parent_of_its_organization(api: Api) -> None:
    sales, other = api.realm.organization(), api.realm.organization()
    team = api.post("/groups", {"organization_id": sales, "name": "team"})
    assert team.status_code == 201
    inner = api.post("/groups", {"organization_id": sales, "name": "inner", "parent_id": team.json()["id"]}).json()
    assert inner["parent_id"] == team.json()["id"]
    assert api.get(f"/groups/{inner['id']}").json() == inner
    strange = {"organization_id": other, "name": "x", "parent_id": inner["id"]}
    problem(api.post("/groups", strange), 404, "not_found")
    taken = problem(api.post("/groups", {"organization_id": sales, "name": "team"}), 409, "conflict")
    assert taken["errors"][0]["path"] == "name"


def test_a_group_takes_members_of_its_organization_for_a_time_or_for_ever(api: Api) -> None:
    ada, eve = api.realm.user(), api.realm.user()
    sales = api.realm.organization(None, ada, eve)
    members = f"/groups/{api.realm.group(sales)}/members"
    added = api.post(members, {"user_id": ada, "expires_at": LATER})
    assert (added.status_code, added.json()["expires_at"]) == (201, LATER)
    again = api.post(members, {"user_id": ada})
    assert (again.status_code, again.json()["expires_at"]) == (200, LATER)
    problem(api.post(members, {"user_id": api.realm.user()}), 409, "not_a_member")
    assert paths(api.post(members, {"user_id": eve, "expires_at": "2020-01-01T00:00:00Z"})) == ["expires_at"]
    assert api.delete(f"{members}/{ada}").status_code == 204
    problem(api.delete(f"{members}/{ada}"), 404, "not_found")


def test_who_changes_a_group_passes_the_ceiling_of_all_it_grants(api: Api) -> None:
    ada = api.realm.user()
    sales = api.realm.organization(None, ada)
    weak = api.by(api.realm.holder(api.realm.role(None, "org.groups.read", "org.groups.write"), sales))
    reading = api.realm.role(None, "org.members.read")
    plain = api.realm.group(sales)
    granting = api.realm.group(sales, roles=[reading])
    below = api.realm.group(sales, parent=granting)
    assert weak.post(f"/groups/{plain}/members", {"user_id": ada}).status_code == 201
    for group in (granting, below):
        problem(weak.post(f"/groups/{group}/members", {"user_id": ada}), 403, "forbidden")
        assert api.post(f"/groups/{group}/members", {"user_id": ada}).status_code == 201
        problem(weak.delete(f"/groups/{group}/members/{ada}"), 403, "forbidden")
    problem(weak.post(f"/groups/{plain}/roles", {"role_id": reading}), 403, "forbidden")
    problem(weak.delete(f"/groups/{granting}/roles/{reading}"), 403, "forbidden")
    some = api.realm.role(None, "org.groups.write", "org.roles.assign")
    assigner = api.by(api.realm.holder(some, sales))
    problem(assigner.post(f"/groups/{plain}/roles", {"role_id": reading}), 403, "grant_ceiling_exceeded")
    problem(assigner.post(f"/groups/{granting}/members", {"user_id": ada}), 403, "grant_ceiling_exceeded")


def test_a_group_grants_roles_and_takes_them_back(api: Api) -> None:
    ada = api.realm.user()
    sales = api.realm.organization(None, ada)
    team, role = api.realm.group(sales, members=[ada]), api.realm.role(None, "org.members.read")
    problem(api.by(ada).get(f"/organizations/{sales}/members"), 403, "forbidden")
    given = api.post(f"/groups/{team}/roles", {"role_id": role})
    assert (given.status_code, given.json()) == (201, {"group_id": team, "role_id": role})
    assert api.post(f"/groups/{team}/roles", {"role_id": role}).status_code == 200
    assert api.get(f"/groups/{team}/roles").json()["items"] == [given.json()]
    assert api.by(ada).get(f"/organizations/{sales}/members").status_code == 200
    assert api.delete(f"/groups/{team}/roles/{role}").status_code == 204
    problem(api.delete(f"/groups/{team}/roles/{role}"), 404, "not_found")
    problem(api.by(ada).get(f"/organizations/{sales}/members"), 403, "forbidden")
    approved = api.realm.role(requires_approval=True)
    for refused in (approved, api.realm.roles["org-owner"]):
        problem(api.post(f"/groups/{team}/roles", {"role_id": refused}), 409, "conflict")
    realm_role = api.realm.role(boundary="realm")
    assert paths(api.post(f"/groups/{team}/roles", {"role_id": realm_role})) == ["role_id"]


# Roles


def test_a_role_is_made_of_the_catalogue(api: Api) -> None:
    catalogue = api.get("/permissions").json()["items"]
    assert {each["name"]: each["risk"] for each in catalogue} == CATALOGUE
    body = {"name": unique("role"), "boundary": "realm", "permissions": ["realm.users.read", "org.*"]}
    made = api.post("/roles", body)
    assert made.status_code == 201
    assert api.get(f"/roles/{made.json()['id']}").json() == made.json()
    assert made.json()["permissions"] == body["permissions"]
    problem(api.post("/roles", body), 409, "conflict")


def test_a_role_is_assigned_once_extended_and_revoked(api: Api) -> None:
    ada, role = api.realm.user(), api.realm.role(boundary="realm")
    body = {"user_id": ada, "role_id": role, "expires_at": LATER}
    made = api.post("/role-assignments", body)
    assert made.status_code == 201, made.text
    assignment = made.json()
    assert (assignment["scope"], assignment["expires_at"]) == ("realm", LATER)
    assert assignment["granted_by"] == api.realm.admin
    again = api.post("/role-assignments", {**body, "expires_at": None})
    assert (again.status_code, again.json()) == (200, assignment)
    path = f"/role-assignments/{assignment['id']}"
    assert api.patch(path, {"expires_at": None}).json()["expires_at"] is None
    assert paths(api.patch(path, {})) == ["expires_at"]
    assert paths(api.patch(path, {"expires_at": "2020-01-01T00:00:00Z"})) == ["expires_at"]
    assert api.delete(path).status_code == 204
    for answer in (api.get(path), api.patch(path, {"expires_at": None}), api.delete(path)):
        problem(answer, 404, "not_found")
    assert events(api, ada) == ["user.created", "role.assignment.granted", "role.assignment.revoked"]


def test_an_assignment_by_hand_takes_the_step_key_away(api: Api) -> None:
    ada, role = api.realm.user(), api.realm.role(boundary="realm")
    assignment = api.realm.grant(ada, role)
    owner(api.realm.database, "UPDATE role_assignments SET step_key = 'wrn_x.a' WHERE id = :id", id=assignment)
    api.patch(f"/role-assignments/{assignment}", {"expires_at": LATER})
    (row,) = rows(api.realm.database, "SELECT step_key FROM role_assignments WHERE id = :id", id=assignment)
    assert row.step_key is None


def test_an_expired_assignment_is_not_there_and_makes_room_for_a_new_one(api: Api) -> None:
    ada, role = api.realm.user(), api.realm.role("x" + unique("r"), "realm.users.read", boundary="realm")
    soon = datetime.now(UTC) + timedelta(hours=1)
    assignment = api.realm.grant(ada, role, expires_at=soon)
    assert api.by(ada).get("/users").status_code == 200
    owner(
        api.realm.database,
        "UPDATE role_assignments SET expires_at = clock_timestamp() - interval '1 s' WHERE id = :id",
        id=assignment,
    )
    problem(api.by(ada).get("/users"), 403, "forbidden")
    path = f"/role-assignments/{assignment}"
    for answer in (api.get(path), api.patch(path, {"expires_at": None}), api.delete(path)):
        problem(answer, 404, "not_found")
    assert api.get("/role-assignments", user_id=ada).json()["items"] == []
    new = api.post("/role-assignments", {"user_id": ada, "role_id": role})
    assert new.status_code == 201
    assert new.json()["id"] != assignment


def test_nobody_gives_more_than_they_hold(api: Api) -> None:
    assigner = api.realm.role(None, "realm.roles.assign", "realm.users.read", boundary="realm")
    weak, ada = api.by(api.realm.holder(assigner)), api.realm.user()
    less, more = (
        api.realm.role(None, permission, boundary="realm") for permission in ("realm.users.read", "realm.users.write")
    )
    assert weak.post("/role-assignments", {"user_id": ada, "role_id": less}).status_code == 201
    problem(weak.post("/role-assignments", {"user_id": ada, "role_id": more}), 403, "grant_ceiling_exceeded")
    assignment = api.realm.grant(ada, more)
    path = f"/role-assignments/{assignment}"
    problem(weak.patch(path, {"expires_at": LATER}), 403, "grant_ceiling_exceeded")
    problem(weak.delete(path), 403, "grant_ceiling_exceeded")
    sales = api.realm.organization(None, ada)
    inside = {"user_id": ada, "role_id": api.realm.role(), "organization_id": sales}
    problem(weak.post("/role-assignments", inside), 403, "forbidden")


def test_whoever_assigns_in_one_organization_does_so_there_alone(api: Api) -> None:
    ada = api.realm.user()
    sales, other = api.realm.organization(None, ada), api.realm.organization(None, ada)
    owner_ = api.by(api.realm.holder(api.realm.roles["org-owner"], sales))
    role = api.realm.role(None, "org.members.read")
    body = {"user_id": ada, "role_id": role, "organization_id": sales}
    assert owner_.post("/role-assignments", body).status_code == 201
    problem(owner_.post("/role-assignments", {**body, "organization_id": other}), 403, "forbidden")
    problem(owner_.post("/role-assignments", {**body, "organization_id": None}), 403, "forbidden")
    outside = {**body, "user_id": api.realm.user()}
    problem(owner_.post("/role-assignments", outside), 409, "not_a_member")
    assert paths(api.post("/role-assignments", {**body, "organization_id": None})) == ["role_id"]


def test_a_role_that_requires_approval_is_never_given_by_hand(api: Api) -> None:
    ada, role = api.realm.user(), api.realm.role(boundary="realm", requires_approval=True)
    body = {"user_id": ada, "role_id": role}
    problem(api.post("/role-assignments", body), 403, "approval_missing")
    assignment = api.realm.grant(ada, role, expires_at=datetime(2090, 1, 1, tzinfo=UTC))
    path = f"/role-assignments/{assignment}"
    assert api.post("/role-assignments", body).status_code == 200, "held already: nothing is given"
    for longer in (None, LATER):
        problem(api.patch(path, {"expires_at": longer}), 403, "approval_missing")
    assert api.patch(path, {"expires_at": "2089-01-01T00:00:00Z"}).status_code == 200
    assert api.delete(path).status_code == 204


def test_an_administrator_may_take_their_own_authority_away(api: Api) -> None:
    role = api.realm.role(None, "realm.*", boundary="realm")
    leaving = api.realm.user()
    assignment = api.realm.grant(leaving, role)
    assert api.by(leaving).delete(f"/role-assignments/{assignment}").status_code == 204
    problem(api.by(leaving).get("/users"), 403, "forbidden")
