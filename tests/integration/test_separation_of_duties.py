"""Who may do what to whom: the table of separation of duties (source: "Authority and accountability"; lifecycle.md,
"Authority"), through the API, and by runs where a run is what acts."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from sqlalchemy.exc import IntegrityError

from db.session import Database
from tests.calling import an_api
from tests.cast import Cast, Told, ok, told
from tests.definitions import Json, id_of, step
from tests.driver import approval_of, drain, owner, working


@pytest.fixture(scope="module")
def cast(module_database: Database) -> Iterator[Cast]:
    with an_api(module_database) as api, working(module_database) as worker:
        yield Cast(api, worker)


Act = Callable[[Cast, str], Told]
FORBIDDEN: Told = (403, "forbidden", None)
DONE: Told = (200, None, None)
STARTED: Told = (201, None, None)
NOT_FOUND: Told = (404, "not_found", None)
UNKNOWN: Told = (401, "unauthenticated", None)
CONFLICT: Told = (409, "conflict", None)


# deciding about a revision, and publishing it


def on_revision(verb: str, *before: tuple[str, str], requires_approval: bool = True) -> Act:
    """That verb on a revision of the author's, after others did theirs."""

    def act(cast: Cast, who: str) -> Told:
        workflow_id = cast.workflow(requires_approval=requires_approval)
        for other, done in before:
            ok(cast.by(other).post(f"/workflows/{workflow_id}/revisions/1/{done}"))
        return told(cast.by(who).post(f"/workflows/{workflow_id}/revisions/1/{verb}"))

    return act


def rolls_back(cast: Cast, who: str) -> Told:
    """To the author's revision, which was approved and published before another took its place."""
    workflow_id = cast.workflow(requires_approval=True)
    cast.stage(workflow_id)
    for number in (1, 2):
        for verb in ("approve", "publish"):
            ok(cast.by("other").post(f"/workflows/{workflow_id}/revisions/{number}/{verb}"))
    return told(cast.by(who).post(f"/workflows/{workflow_id}/rollback", {"revision": 1}))


def approves_beside_their_own(cast: Cast, who: str) -> Told:
    """A revision of another's, of a workflow that has one of their own, too."""
    workflow_id = cast.workflow(requires_approval=True, by="other")
    cast.stage(workflow_id, by=who)
    return told(cast.by(who).post(f"/workflows/{workflow_id}/revisions/1/approve"))


REVISIONS: dict[str, tuple[Act, dict[str, Told]]] = {
    "approves the author's revision": (
        on_revision("approve"),
        {
            "author": FORBIDDEN,
            "other": DONE,
            "publisher": DONE,
            "runner": FORBIDDEN,
            "approver": FORBIDDEN,
            "machine": FORBIDDEN,
            "suspended": UNKNOWN,
        },
    ),
    "rejects the author's revision": (
        on_revision("reject"),
        {"author": FORBIDDEN, "other": DONE, "runner": FORBIDDEN, "machine": FORBIDDEN, "suspended": UNKNOWN},
    ),
    "rejects the author's revision, which is approved": (
        on_revision("reject", ("other", "approve")),
        {"author": FORBIDDEN, "other": DONE, "publisher": DONE},
    ),
    "approves another's revision beside their own": (approves_beside_their_own, {"author": DONE}),
    "publishes a revision that is not approved": (
        on_revision("publish"),
        {"author": FORBIDDEN, "publisher": FORBIDDEN, "machine": FORBIDDEN},
    ),
    "publishes a revision that another approved": (
        on_revision("publish", ("other", "approve")),
        {
            "author": DONE,
            "publisher": DONE,
            "other": DONE,
            "runner": FORBIDDEN,
            "machine": FORBIDDEN,
            "suspended": UNKNOWN,
        },
    ),
    "publishes a revision that another rejected": (
        on_revision("publish", ("other", "reject")),
        {"author": CONFLICT, "publisher": CONFLICT, "other": CONFLICT},
    ),
    "publishes a revision that was approved and then rejected": (
        on_revision("publish", ("other", "approve"), ("publisher", "reject")),
        {"author": CONFLICT, "other": CONFLICT},
    ),
    "publishes a revision that needs no approval": (
        on_revision("publish", requires_approval=False),
        {"author": DONE, "publisher": DONE, "machine": FORBIDDEN},
    ),
    "rolls back": (rolls_back, {"author": DONE, "publisher": DONE, "runner": FORBIDDEN, "machine": FORBIDDEN}),
}


# starting a run by hand


def starts(*steps: Json, about: str = "subject") -> Act:
    """A run, when the publisher has published these steps."""
    return lambda cast, who: told(cast.start(cast.published(*steps), who, about))


def starts_about_themselves(cast: Cast, who: str) -> Told:
    return told(cast.start(cast.published(), who, who))


def starts_a_gift(cast: Cast, who: str) -> Told:
    """Of a role that the starter may assign, but does not hold."""
    acme = cast.api.realm
    weak = acme.holder(acme.role(None, "realm.workflows.run", "org.roles.assign", boundary="realm"))
    gift = step("assign_role", role_id=acme.role(None, "org.groups.write"), organization_id=...)
    return told(cast.start(cast.published(step("wait", id="w"), gift), weak if who == "weak" else who, "subject"))


ON_ONESELF = (403, "forbidden", "subject_id")
SECOND_STEP = (403, "forbidden", "definition.steps[1]")

STARTS: dict[str, tuple[Act, dict[str, Told]]] = {
    "starts a run about the subject": (
        starts(),
        {
            "starter": STARTED,
            "author": STARTED,
            "publisher": STARTED,
            "runner": STARTED,
            "approver": FORBIDDEN,
            "machine": FORBIDDEN,
            "suspended": UNKNOWN,
        },
    ),
    "starts a run about themselves": (
        starts_about_themselves,
        {
            "subject": ON_ONESELF,
            "starter": ON_ONESELF,
            "publisher": ON_ONESELF,
            "author": ON_ONESELF,
            "runner": ON_ONESELF,
        },
    ),
    "starts a run that suspends the subject": (
        starts(step("wait", id="w"), step("suspend_user")),
        {"starter": STARTED, "runner": SECOND_STEP, "machine": FORBIDDEN},
    ),
    "starts a run that gives what they do not hold": (
        starts_a_gift,
        {"starter": STARTED, "runner": SECOND_STEP, "weak": (403, "grant_ceiling_exceeded", "definition.steps[1]")},
    ),
}


# deciding an approval

ASKED = ("decider", "approver", "publisher", "starter", "author", "subject")
"""Whom the approval step names."""


def decides(verdict: str, *, named: tuple[str, ...] = ASKED, once: Callable[[Cast, str], object] | None = None) -> Act:
    """Approve or reject what a run asks of those named, after something has happened to the decider meanwhile."""

    def act(cast: Cast, who: str) -> Told:
        approvers = [getattr(cast, name) if name != "who" else getattr(cast, who, who) for name in named]
        run_id = cast.run(step("approval", approvers=approvers))
        approval_id = approval_of(cast.api.realm, run_id).id
        me = cast.api.by(getattr(cast, who, who), "account", mfa=False)
        if once is not None:
            once(cast, run_id)
        listed = approval_id in me.get("/me/workflow-approvals", limit=100).text
        answer = me.post(f"/me/workflow-approvals/{approval_id}/{verdict}")
        assert listed == answer.is_success
        if answer.status_code == 404:  # in the very words in which a missing one is
            missing = me.post(f"/me/workflow-approvals/{id_of('wap')}/{verdict}")
            assert (answer.status_code, answer.json()) == (missing.status_code, missing.json())
            assert approval_of(cast.api.realm, run_id).state == "pending"
        return told(answer)

    return act


def a_user(cast: Cast) -> str:
    return cast.api.realm.user()


def on_somebody(verdict: str, change: Callable[[Cast, str], object]) -> Act:
    """By a new user who was named, and to whom something has happened since."""

    def act(cast: Cast, who: str) -> Told:
        user_id = a_user(cast)
        return decides(verdict, named=("who", "decider"), once=lambda cast, run_id: change(cast, user_id))(
            cast, user_id
        )

    return act


def becomes_a_guest(cast: Cast, user_id: str) -> None:
    ok(cast.api.patch(f"/users/{user_id}", {"kind": "guest"}))


def is_suspended(cast: Cast, user_id: str) -> None:
    ok(cast.api.post(f"/users/{user_id}/suspend"))


def is_suspended_for_a_while(cast: Cast, user_id: str) -> None:
    is_suspended(cast, user_id)
    ok(cast.api.post(f"/users/{user_id}/reactivate"))


def is_a_guest_for_a_while(cast: Cast, user_id: str) -> None:
    becomes_a_guest(cast, user_id)
    ok(cast.api.patch(f"/users/{user_id}", {"kind": "member"}))


def another_was_first(cast: Cast, run_id: str) -> None:
    approval_id = approval_of(cast.api.realm, run_id).id
    ok(cast.api.by(cast.decider, "account").post(f"/me/workflow-approvals/{approval_id}/approve"))


def is_about_them_now(cast: Cast, run_id: str, user_id: str) -> None:
    """No verb moves a run to another subject. Were it so by whatever means, the approval would tell."""
    owner(
        cast.api.realm.database,
        "UPDATE workflow_approvals SET subject_id = :user WHERE run_id = :run",
        user=user_id,
        run=run_id,
    )


def on_themselves(verdict: str) -> Act:
    def act(cast: Cast, who: str) -> Told:
        user_id = a_user(cast)
        once = lambda cast, run_id: is_about_them_now(cast, run_id, user_id)  # noqa: E731
        return decides(verdict, named=("who", "decider"), once=once)(cast, user_id)

    return act


def through_the_administration(verdict: str) -> Act:
    """Self-service is not for a token of the administration, nor for a machine."""

    def act(cast: Cast, who: str) -> Told:
        run_id = cast.run(step("approval", approvers=[cast.decider]))
        approval_id = approval_of(cast.api.realm, run_id).id
        return told(cast.by(who).post(f"/me/workflow-approvals/{approval_id}/{verdict}"))

    return act


NAMED: dict[str, Told] = {"decider": DONE, "approver": DONE, "publisher": DONE, "starter": DONE, "author": DONE}
SOMEBODY = "somebody named"

APPROVALS: dict[str, tuple[Act, dict[str, Told]]] = {
    f"{verdict}s{rest}": (act(verdict), expected)
    for verdict in ("approve", "reject")
    for rest, act, expected in (
        ("", decides, {**NAMED, "subject": NOT_FOUND, "other": NOT_FOUND, "suspended": UNKNOWN}),
        (", having become a guest", lambda v: on_somebody(v, becomes_a_guest), {SOMEBODY: NOT_FOUND}),
        (", having been suspended", lambda v: on_somebody(v, is_suspended), {SOMEBODY: UNKNOWN}),
        (", having been suspended for a while", lambda v: on_somebody(v, is_suspended_for_a_while), {SOMEBODY: DONE}),
        (", having been a guest for a while", lambda v: on_somebody(v, is_a_guest_for_a_while), {SOMEBODY: DONE}),
        (", being the subject by now", on_themselves, {SOMEBODY: NOT_FOUND}),
        (" what another has approved", lambda v: decides(v, once=another_was_first), {"approver": CONFLICT}),
        (" as an administrator", through_the_administration, {"decider": UNKNOWN, "machine": UNKNOWN}),
    )
}


# a role that requires approval


def gift(cast: Cast, role_id: str | None = None) -> Json:
    return step("assign_role", id="give", role_id=role_id or cast.role, organization_id=...)


def asks(*approvers: str, id: str = "ask") -> Json:
    return step("approval", id=id, approvers=list(approvers))


def says_yes(cast: Cast, run_id: str, user_id: str) -> None:
    """That user approves what the run asks for now, and the run goes on."""
    drain(cast.worker, cast.api.realm)
    approval_id = approval_of(cast.api.realm, run_id).id
    ok(cast.api.by(user_id, "account").post(f"/me/workflow-approvals/{approval_id}/approve"))


def a_subject(cast: Cast) -> str:
    (user_id,) = cast.api.realm.users(1, cast.sales)
    return user_id


def approves_the_role(cast: Cast, who: str) -> Told:
    """Be the one who approves it."""
    approver = getattr(cast, who, None) or DECIDERS[who](cast)
    run_id = cast.run(asks(approver), gift(cast), about=a_subject(cast))
    says_yes(cast, run_id, approver)
    return cast.became(run_id)


DECIDERS: dict[str, Callable[[Cast], str]] = {
    "somebody who may not assign roles": lambda cast: cast.a_decider("org.members.read"),
    "somebody who does not hold what it has": lambda cast: cast.a_decider("org.roles.assign"),
    "the decider of another organization": lambda cast: elsewhere(cast),
}


def elsewhere(cast: Cast) -> str:
    acme = cast.api.realm
    return acme.holder(acme.role(None, "org.roles.assign", "org.members.read"), acme.organization())


def approves_a_role_for_themselves(cast: Cast, who: str) -> Told:
    """Be the only approver of a run about oneself."""
    subject = a_subject(cast)
    return cast.became(cast.run(asks(subject), gift(cast), about=subject))


def approves_a_role_of_the_realm(cast: Cast, who: str) -> Told:
    role = cast.api.realm.role(None, "org.members.read", boundary="realm", requires_approval=True)
    approver = getattr(cast, who)
    run_id = cast.run(asks(approver), {**gift(cast, role), "scope": "realm"}, about=a_subject(cast))
    says_yes(cast, run_id, approver)
    return cast.became(run_id)


def is_not_asked(cast: Cast, who: str) -> Told:
    return cast.became(cast.run(gift(cast), about=a_subject(cast)))


def is_asked_too_late(cast: Cast, who: str) -> Told:
    return cast.became(cast.run(gift(cast), asks(cast.decider), about=a_subject(cast)))


def approves_in_turn(*deciders: str) -> Act:
    """Two approvals, then the role: the decider of the latest one counts."""

    def act(cast: Cast, who: str) -> Told:
        users = [getattr(cast, name) for name in deciders]
        asked = [asks(user_id, id=f"ask{index}") for index, user_id in enumerate(users)]
        run_id = cast.run(*asked, gift(cast), about=a_subject(cast))
        for user_id in users:
            says_yes(cast, run_id, user_id)
        return cast.became(run_id)

    return act


def approves_and_then(change: Callable[[Cast, str], object]) -> Act:
    """The role is given after something has happened to whoever approved it."""

    def act(cast: Cast, who: str) -> Told:
        decider = cast.a_decider()
        run_id = cast.run(asks(decider), gift(cast), about=a_subject(cast))
        says_yes(cast, run_id, decider)
        change(cast, decider)
        return cast.became(run_id)

    return act


def loses_the_role(cast: Cast, user_id: str) -> None:
    (held,) = cast.api.get("/role-assignments", user_id=user_id).json()["items"]
    ok(cast.api.delete(f"/role-assignments/{held['id']}"))


def leaves_the_organization(cast: Cast, user_id: str) -> None:
    ok(cast.api.delete(f"/organizations/{cast.sales}/members/{user_id}"))


def gives_by_hand(cast: Cast, who: str) -> Told:
    body = {"user_id": a_subject(cast), "role_id": cast.role, "organization_id": cast.sales}
    return told(cast.by(who).post("/role-assignments", body))


def lengthens_by_hand(cast: Cast, who: str) -> Told:
    """What a workflow has given for a while."""
    subject = a_subject(cast)
    run_id = cast.run(asks(cast.decider), {**gift(cast), "expires_in": "24h"}, about=subject)
    says_yes(cast, run_id, cast.decider)
    assert cast.became(run_id)[0] == "succeeded"
    (held,) = cast.api.get("/role-assignments", user_id=subject).json()["items"]
    return told(cast.by(who).patch(f"/role-assignments/{held['id']}", {"expires_at": "2099-01-01T00:00:00Z"}))


def gives_to_a_group(cast: Cast, who: str) -> Told:
    team = cast.api.realm.group(cast.sales)
    return told(cast.by(who).post(f"/groups/{team}/roles", {"role_id": cast.role}))


GIVEN: Told = ("succeeded", None, None)
NEVER_BY_HAND: Told = (403, "approval_missing", "role_id")


def failed(category: str) -> Told:
    return ("failed", category, None)


ROLES: dict[str, tuple[Act, dict[str, Told]]] = {
    "approves the role": (
        approves_the_role,
        {
            "decider": GIVEN,
            "other": GIVEN,
            "author": GIVEN,
            "starter": GIVEN,
            "publisher": failed("forbidden"),
            "approver": failed("forbidden"),
            "somebody who may not assign roles": failed("forbidden"),
            "somebody who does not hold what it has": failed("grant_ceiling_exceeded"),
            "the decider of another organization": failed("forbidden"),
        },
    ),
    "approves a role of their own": (approves_a_role_for_themselves, {"subject": failed("no_eligible_approver")}),
    "approves a role of the realm": (
        approves_a_role_of_the_realm,
        {"other": GIVEN, "decider": failed("forbidden"), "publisher": failed("forbidden")},
    ),
    "is not asked": (is_not_asked, {"nobody": failed("approval_missing")}),
    "is asked when the role is given": (is_asked_too_late, {"decider": failed("approval_missing")}),
    "approves before another who could not give it": (
        approves_in_turn("decider", "approver"),
        {"decider": failed("forbidden")},
    ),
    "approves after another who could not give it": (approves_in_turn("approver", "decider"), {"decider": GIVEN}),
    "approves before the publisher": (approves_in_turn("decider", "publisher"), {"decider": failed("forbidden")}),
    "approves after the publisher": (approves_in_turn("publisher", "decider"), {"decider": GIVEN}),
    "approves, and then loses the right": (approves_and_then(loses_the_role), {"decider": failed("forbidden")}),
    "approves, and then leaves": (approves_and_then(leaves_the_organization), {"decider": failed("forbidden")}),
    "approves, and then is suspended": (approves_and_then(is_suspended), {"decider": failed("forbidden")}),
    "approves, and nothing happens": (approves_and_then(lambda cast, user_id: None), {"decider": GIVEN}),
    "gives the role by hand": (
        gives_by_hand,
        {"decider": NEVER_BY_HAND, "other": NEVER_BY_HAND, "approver": FORBIDDEN},
    ),
    "lengthens the role by hand": (
        lengthens_by_hand,
        {"decider": (403, "approval_missing", "role_id"), "other": (403, "approval_missing", "role_id")},
    ),
    "lets a group grant the role": (gives_to_a_group, {"other": (409, "conflict", "role_id")}),
}


# acting on oneself


def publishes_about_themselves(kind: str) -> Act:
    """A step that acts on its own publisher, in a run that another started."""

    def act(cast: Cast, who: str) -> Told:
        about = who if who == "publisher" else a_subject(cast)
        return cast.became(cast.run(step(kind, **members_of(cast, kind)), about=about))

    return act


def members_of(cast: Cast, kind: str) -> Json:
    acme = cast.api.realm
    match kind:
        case "assign_role" | "remove_role":
            return {"role_id": acme.role(None), "scope": "organization", "organization_id": ..., "expires_in": ...}
        case "add_to_group" | "remove_from_group":
            return {"group_id": acme.group(cast.sales), "organization_id": ..., "expires_in": ...}
        case "remove_membership":
            return {"organization_id": ...}
        case "notify":
            return {"recipients": ...}
    return {}


ON_SELF: dict[str, tuple[Act, dict[str, Told]]] = {
    f"is acted on by {kind}": (
        publishes_about_themselves(kind),
        {"publisher": failed("self_action"), "somebody else": GIVEN},
    )
    for kind in ("assign_role", "remove_role", "add_to_group", "remove_from_group", "remove_membership", "suspend_user")
} | {"is told of by notify": (publishes_about_themselves("notify"), {"publisher": GIVEN})}


TABLE = {**REVISIONS, **STARTS, **APPROVALS, **ROLES, **ON_SELF}
ROWS = [(who, what, expected) for what, (_, cells) in TABLE.items() for who, expected in cells.items()]


@pytest.mark.parametrize(("who", "what", "expected"), ROWS, ids=[f"{who} {what}" for who, what, _ in ROWS])
def test_who_may_do_what(cast: Cast, who: str, what: str, expected: Told) -> None:
    act, _ = TABLE[what]
    assert act(cast, who) == expected


@pytest.mark.parametrize(("who", "named"), [("subject", "subject"), ("other", "decider")])
def test_not_even_the_database_takes_a_decision_by_the_subject_or_by_somebody_not_named(
    cast: Cast, who: str, named: str
) -> None:
    run_id = cast.run(asks(cast.decider))
    says_yes(cast, run_id, cast.decider)
    forged = "UPDATE workflow_approvals SET decided_by = :who, approvers = ARRAY[:named] WHERE run_id = :run"
    with pytest.raises(IntegrityError, match=r"never_the_subject|decided_by_an_approver"):
        owner(cast.api.realm.database, forged, who=getattr(cast, who), named=getattr(cast, named), run=run_id)
