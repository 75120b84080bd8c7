"""Definitions: every limit of the source at, below and above its bound; what is refused, and where the fault is said to be."""

from __future__ import annotations

import json
import time
from copy import deepcopy
from typing import Any

import pytest

from engine.core.canonical import canonical_bytes, sha256_hex
from engine.core.errors import DefinitionInvalid, Fault, Refused
from engine.lifecycle.definition import MAX_BYTES, Definition, canonical, load, parse
from tests.definitions import (
    SELECTORS,
    STEPS,
    Json,
    definition,
    event,
    id_of,
    of_every_kind,
    onboarding,
    schedule,
    step,
)

KINDS = [each["type"] for each in STEPS]
NEVER_RETRIED = ["wait", "approval", "end"]
RETRIED = [kind for kind in KINDS if kind not in NEVER_RETRIED]


def faults(value: object) -> list[Fault]:
    """What is wrong with a definition; nothing if it is taken."""
    try:
        parse(value)
    except DefinitionInvalid as invalid:
        return invalid.faults
    return []


def found(value: object) -> set[tuple[str, str]]:
    """Path and rule of every fault."""
    return {(fault.path.removeprefix("definition").removeprefix("."), fault.rule) for fault in faults(value)}


def steps(number: int) -> list[Json]:
    return [step("end", id=f"s{index}") for index in range(number)]


def approvers(number: int) -> list[str]:
    return [id_of("usr", letter) for letter in "0123456789abcdef"[:number]]


def retry(**members: Any) -> Json:
    return definition(retry=members)


def own_retry(**members: Any) -> Json:
    return definition(step("suspend_user", retry=members))


# --- what is taken ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", of_every_kind())
def test_a_definition_with_every_member_of_every_kind_is_taken_and_round_trips(value: Json) -> None:
    parsed = parse(value)
    text, sha256 = canonical(parsed)
    assert text.encode() == canonical_bytes(value), "exactly what the author gave"
    assert sha256 == sha256_hex(text.encode())
    read = load(text, sha256)
    assert read == parsed
    assert canonical(read) == (text, sha256)


def test_the_order_of_members_and_the_white_space_do_not_change_the_hash_but_a_default_written_out_does() -> None:
    shuffled = json.loads(json.dumps(onboarding(), indent=3), object_pairs_hook=lambda pairs: dict(reversed(pairs)))
    assert canonical(parse(shuffled)) == canonical(parse(onboarding()))
    plain, written_out = definition(), definition(retry={"max_attempts": 3, "backoff": "30s"})
    assert canonical(parse(plain)).sha256 != canonical(parse(written_out)).sha256
    assert parse(plain).retry == parse(written_out).retry


def test_durations_keep_the_text_of_their_author() -> None:
    assert '"for":"1h90m"' in canonical(parse(definition(step("wait", **{"for": "1h90m"})))).text


def test_the_policy_in_force_is_the_steps_own_then_the_definitions_then_three_attempts_and_thirty_seconds() -> None:
    own = step("suspend_user", id="own", retry={"max_attempts": 7})
    value = definition(own, step("suspend_user", id="other"), step("end", id="end"), step("wait", id="wait"))
    value["retry"] = {"max_attempts": 2, "backoff": "1m"}
    parsed = parse(value)
    in_force = [(parsed.policy(each).max_attempts, parsed.policy(each).backoff.seconds) for each in parsed.steps]
    assert in_force[:2] == [(7, 30.0), (2, 60.0)], "a policy of its own replaces the other as a whole"
    assert [attempts for attempts, _ in in_force[2:]] == [1, 1], "an end or a wait is never retried"
    del value["retry"]
    by_default = parse(value).policy(parse(value).steps[1])
    assert (by_default.max_attempts, by_default.backoff.seconds) == (3, 30.0)


def test_the_organization_is_pinned_only_where_every_trigger_pins_the_same_one() -> None:
    here, there = {"organization_id": id_of("org")}, {"organization_id": id_of("org", "1")}
    for triggers, pinned in [
        ([event(**here), schedule(**here)], id_of("org")),
        ([event(**here), schedule(**there)], None),
        ([event(**here), event()], None),
        ([event(**here), {"type": "manual"}], None),
        ([schedule(organization_id=...)], None),
    ]:
        assert parse(definition(triggers=triggers)).pinned_organization == pinned


def test_triggers_may_be_given_twice() -> None:
    assert not faults(definition(triggers=[{"type": "manual"}, {"type": "manual"}, event(), event()]))


# --- the limits ------------------------------------------------------------------------------------------------------

LIMITS: list[tuple[str, Json, bool]] = [
    *[(f"{n} triggers", definition(triggers=[{"type": "manual"}] * n), 1 <= n <= 5) for n in (0, 1, 5, 6)],
    *[(f"{n} steps", definition(*steps(n)) | {"steps": steps(n)}, 1 <= n <= 20) for n in (0, 1, 20, 21)],
    *[(f"step id {name!r}", definition(step("end", id=name)), ok) for name, ok in [
        ("a", True), ("a" * 40, True), ("a-_9", True), ("z0", True), ("a" * 41, False), ("", False), ("A", False),
        ("9a", False), ("_a", False), ("-a", False), ("aB", False), ("a.b", False), ("a\n", False), ("\na", False),
        ("é", False), ("aé", False), ("a٣", False), ("a b", False), (1, False), (True, False), (["a"], False),
    ]],
    *[(f"{n} event types", definition(triggers=[{"type": "event", "event_types": types[:n]}]), 1 <= n <= 10)
      for types in [["user.created", "user.updated", "user.suspended", "user.reactivated",
                     "organization.membership.added", "organization.membership.removed", "group.membership.added",
                     "group.membership.removed", "role.assignment.granted", "role.assignment.revoked",
                     "role.assignment.expired"]] for n in (0, 1, 10, 11)],
    *[(f"every {text}", definition(triggers=[schedule(every=text)]), ok) for text, ok in [
        ("1h", True), ("3600s", True), ("1h1s", True), ("8760h", True), ("59m59s", False), ("8760h1s", False),
        ("1h1ms", False), ("0s", False), ("1h\n", False), (3600, False), ("1d", False)]],
    *[(f"max_attempts {n!r} of {of.__name__}", of(max_attempts=n), ok) for of in (retry, own_retry) for n, ok in [
        (1, True), (10, True), (0, False), (11, False), (-1, False), (2.0, False), (2.5, False), ("5", False),
        (True, False), (10**30, False)]],
    *[(f"backoff {text!r} of {of.__name__}", of(backoff=text), ok) for of in (retry, own_retry) for text, ok in [
        ("1s", True), ("1000ms", True), ("1h", True), ("60m", True), ("999ms", False), ("0.999s", False),
        ("1h1ms", False), ("61m", False), ("0s", False), ("-1s", False), (30, False)]],
    *[(f"{n} approvers", definition(step("approval", approvers=approvers(n))), 1 <= n <= 10) for n in (0, 1, 10, 11)],
    *[(f"approval expires in {text}", definition(step("approval", expires_in=text)), ok) for text, ok in [
        ("1m", True), ("60s", True), ("720h", True), ("59s", False), ("720h1s", False), ("720h0.001s", False)]],
    *[(f"wait for {text}", definition(step("wait", **{"for": text})), ok) for text, ok in [
        ("1m", True), ("8760h", True), ("59.999s", False), ("8760h1ms", False), ("9999999999h", False)]],
    *[(f"{kind} expires in {text}", definition(step(kind, expires_in=text)), ok)
      for kind in ("assign_role", "add_to_group") for text, ok in [
          ("1m", True), ("87600h", True), ("59s", False), ("87600h1s", False)]],
    *[(f"timeout_ms {n!r}", definition(step("call_webhook", timeout_ms=n)), ok) for n, ok in [
        (100, True), (30000, True), (99, False), (30001, False), (1000.0, False), ("1000", False), (True, False)]],
    *[(f"{member} {text} of {kind}", definition(triggers=[schedule(kind, **{member: text})]), ok)
      for kind, member in [(each["type"], name) for each in SELECTORS for name in each if name.endswith("_before")]
      for text, ok in [("1m", True), ("87600h", True), ("59s", False), ("87600h1s", False), ("", False)]],
    *[(f"compensate {flag!r}", definition(step("call_webhook", compensate=flag)), ok) for flag, ok in [
        (True, True), (False, True), (1, False), (0, False), ("true", False), ("yes", False)]],
    *[(f"schema_version {n!r}", definition() | {"schema_version": n}, ok) for n, ok in [
        (1, True), (0, False), (2, False), (1.0, False), (True, False), ("1", False)]],
]  # fmt: skip


@pytest.mark.parametrize(("value", "taken"), [limit[1:] for limit in LIMITS], ids=[limit[0] for limit in LIMITS])
def test_a_limit_is_kept(value: Json, taken: bool) -> None:
    assert (faults(value) == []) is taken


def test_a_definition_is_at_most_64_kib_in_canonical_form() -> None:
    value: Json = definition(padding="")
    value["padding"] = "x" * (MAX_BYTES - len(canonical_bytes(value)))
    assert found(value) == {("padding", "unknown_member")}, "at the bound the size is no fault"
    value["padding"] += "x"
    assert found(value) == {("", "size")}


def test_white_space_around_a_definition_does_not_count_towards_its_size() -> None:
    assert not faults(json.loads(json.dumps(onboarding(), indent=4000)))


# --- what does not belong --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["script", "expression", "condition", "if", "loop", "comment", "Id", "id ", ""])
def test_an_unknown_member_is_refused_wherever_it_stands(name: str) -> None:
    sound = definition(step("suspend_user", retry={}), triggers=[event(), schedule()], retry={})
    for place in ([], ["triggers", 0], ["triggers", 1], ["triggers", 1, "select"], ["steps", 0], ["retry"],
                  ["steps", 0, "retry"]):  # fmt: skip
        value = deepcopy(sound)
        inner: Any = value
        for part in place:
            inner = inner[part]
        inner[name] = "1 + 1"
        (fault,) = faults(value)
        assert fault.rule == "unknown_member"
        assert fault.path.endswith(f".{name}" if name.isalpha() else "[?]")
        assert fault.path.count(".") == sum(isinstance(part, str) for part in place) + name.isalpha()


@pytest.mark.parametrize("kind", KINDS)
def test_a_member_of_another_step_type_is_refused(kind: str) -> None:
    own = set(step(kind))
    foreign = {name: value for each in STEPS for name, value in each.items() if name not in own and name != "type"}
    belongs = {"remove_role": {"organization_id"}, "suspend_user": set[str]()}.get(kind, set())
    if kind in RETRIED:
        belongs = belongs | {"retry"}
    refused = {name for name, value in foreign.items() if ("steps[0]." + name, "unknown_member") in found(
        definition(step(kind, **{name: value})))}  # fmt: skip
    assert refused == set(foreign) - belongs
    assert len(refused) > 7


@pytest.mark.parametrize("kind", NEVER_RETRIED)
def test_waits_approvals_and_ends_take_no_retry_policy(kind: str) -> None:
    assert found(definition(step(kind, retry={}))) == {("steps[0].retry", "unknown_member")}


@pytest.mark.parametrize("kind", RETRIED)
def test_every_other_step_takes_one(kind: str) -> None:
    assert not faults(definition(step(kind, retry={"max_attempts": 5, "backoff": "30s"})))


@pytest.mark.parametrize("selector", SELECTORS, ids=lambda selector: selector["type"])
def test_a_member_of_another_selector_is_refused(selector: Json) -> None:
    names = {name for each in SELECTORS for name in each} - set(selector)
    for name in names:
        value = definition(triggers=[schedule(selector["type"], **{name: "2160h"})])
        assert found(value) == {(f"triggers[0].select.{name}", "unknown_member")}


REQUIRED = {
    "assign_role": {"role_id", "scope"},
    "remove_role": {"role_id", "scope"},
    "add_to_group": {"group_id"},
    "remove_from_group": {"group_id"},
    "remove_membership": set(),
    "suspend_user": set(),
    "notify": {"notice"},
    "approval": {"approvers", "expires_in"},
    "wait": {"for"},
    "call_webhook": {"subscription_id"},
    "end": set(),
    "role_holders": {"role_id"},
    "group_members": {"group_id"},
    "organization_members": set(),
    "inactive_users": {"last_active_before"},
    "never_signed_in": {"created_before"},
    "guests": set(),
    "suspended_users": set(),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_needs_its_members_and_no_more(kind: str) -> None:
    needed = {name for name in step(kind) if faults(definition(step(kind, **{name: ...})))}
    assert needed == {"id", "type"} | REQUIRED[kind]
    assert not faults(definition(step(kind, **dict.fromkeys(set(step(kind)) - needed, ...))))


@pytest.mark.parametrize("kind", [each["type"] for each in SELECTORS])
def test_a_selector_needs_its_members_and_no_more(kind: str) -> None:
    names = next(each for each in SELECTORS if each["type"] == kind)
    needed = {name for name in names if faults(definition(triggers=[schedule(kind, **{name: ...})]))}
    assert needed == {"type"} | REQUIRED[kind]


def test_null_is_no_way_to_leave_a_member_out() -> None:
    value = definition(step("add_to_group", organization_id=None, expires_in=None, retry=None), retry=None)
    value["triggers"] = [event(organization_id=None), None]
    assert found(value) == {
        ("steps[0].organization_id", "required"),
        ("steps[0].expires_in", "required"),
        ("steps[0].retry", "required"),
        ("retry", "required"),
        ("triggers[0].organization_id", "required"),
        ("triggers[1]", "required"),
    }


@pytest.mark.parametrize("kind", ["assign_role", "remove_role"])
def test_a_role_held_in_the_realm_is_held_in_no_organization(kind: str) -> None:
    organization = id_of("org")
    in_realm = definition(step(kind, scope="realm", organization_id=organization))
    assert found(in_realm) == {("steps[0].organization_id", "scope")}
    assert not faults(definition(step(kind, scope="realm", organization_id=...)))
    assert not faults(definition(step(kind, scope="organization", organization_id=organization)))
    assert not faults(definition(step(kind, scope="organization", organization_id=...)))
    assert found(definition(step(kind, scope="group"))) == {("steps[0].scope", "one_of")}


def test_ids_are_of_the_kind_that_is_asked_for() -> None:
    wrong = [("role_id", "assign_role", "grp"), ("group_id", "add_to_group", "rol"), ("organization_id", "add_to_group", "rlm"),
             ("subscription_id", "call_webhook", "whd")]  # fmt: skip
    for name, kind, prefix in wrong:
        for bad in (id_of(prefix), id_of(prefix).upper(), id_of(prefix) + "\n", "", 1, {"$ref": "x"}):
            assert {path for path, _ in found(definition(step(kind, **{name: bad})))} == {f"steps[0].{name}"}
    for bad in (id_of("spn"), id_of("usr") + "\n"):
        approval = step("approval", approvers=[id_of("usr"), bad])
        assert found(definition(step("end", id="e"), approval)) == {("steps[1].approvers[1]", "pattern")}


def test_what_is_named_in_a_list_is_named_once() -> None:
    assert found(definition(step("approval", approvers=approvers(2) + approvers(1)))) == {
        ("steps[0].approvers", "unique")
    }
    assert found(definition(triggers=[event("user.created", "user.created")])) == {
        ("triggers[0].event_types", "unique")
    }


def test_every_notice_recipient_and_event_type_of_the_specification_is_taken() -> None:
    notices = "welcome access_granted access_expiring access_removed approval_requested account_suspended offboarding"
    for notice in notices.split():
        assert not faults(definition(step("notify", notice=notice, recipients=...)))
    for recipients in ("subject", "approvers", "organization_owners"):
        assert not faults(definition(step("notify", recipients=recipients)))
    for subject, events in {
        "user": "created updated suspended reactivated",
        "organization.membership": "added removed",
        "group.membership": "added removed",
        "role.assignment": "granted revoked expired",
    }.items():
        for happened in events.split():
            assert not faults(definition(triggers=[event(f"{subject}.{happened}")]))


def test_words_are_of_their_lists() -> None:
    for notice in ("hello", "Welcome", "welcome\n", "", 1, ["welcome"]):
        assert found(definition(step("notify", notice=notice))) == {("steps[0].notice", "one_of")}
    assert found(definition(step("notify", recipients="everyone"))) == {("steps[0].recipients", "one_of")}
    for event_type in ("user.signed_in", "user.*", "USER.CREATED", "workflow.published"):
        assert found(definition(triggers=[event(event_type)])) == {("triggers[0].event_types[0]", "one_of")}
    kinds: list[Any] = ["script", "Wait", "", 1, None, ["wait"], {}]
    for kind in kinds:
        assert {path for path, _ in found(definition({"id": "a", "type": kind}))} == {"steps[0].type"}
        assert {path for path, _ in found(definition(triggers=[{"type": kind}]))} == {"triggers[0].type"}
        assert {path for path, _ in found(definition(triggers=[schedule(type=kind)]))} == {"triggers[0].select.type"}


# --- how faults are told ---------------------------------------------------------------------------------------------


def test_every_fault_is_told_at_once_with_a_path_that_an_author_knows() -> None:
    value = definition(
        step("approval", id="a", approvers=[id_of("usr"), "usr_x"], retry={}),
        step("wait", id="a", **{"for": "1s"}),
        "wait",  # type: ignore[arg-type]
        {"id": "b"},
        step("assign_role", id="c", retry={"max_attempts": 11}),
        triggers=[event("user.created", "x"), schedule("guests", every="1m", joined_before="1h"), {"type": "cron"}],
        script="",
    )
    assert found(value) == {
        ("steps[0].approvers[1]", "pattern"),
        ("steps[0].retry", "unknown_member"),
        ("steps[1].id", "unique"),
        ("steps[1].for", "duration_range"),
        ("steps[2]", "type"),
        ("steps[3].type", "required"),
        ("steps[4].retry.max_attempts", "range"),
        ("triggers[0].event_types[1]", "one_of"),
        ("triggers[1].every", "duration_range"),
        ("triggers[1].select.joined_before", "unknown_member"),
        ("triggers[2].type", "one_of"),
        ("script", "unknown_member"),
    }


def test_a_step_id_used_again_is_told_at_every_place_but_the_first() -> None:
    assert found(definition(*[step("end", id=name) for name in "abaca"])) == {
        ("steps[2].id", "unique"),
        ("steps[4].id", "unique"),
    }


SECRET = "s3cret"


def test_no_fault_repeats_what_was_sent() -> None:
    value = definition(step("wait", **{"for": SECRET, f"{SECRET} ": 1}), {"id": SECRET.upper(), "type": SECRET})
    value["triggers"] = [event(SECRET), schedule(type=SECRET), schedule(every=SECRET), {"type": SECRET}, SECRET]
    value |= {"schema_version": SECRET, "retry": {"max_attempts": SECRET, "backoff": [SECRET]}}
    told = faults(value)
    assert len(told) == 11
    assert SECRET not in repr(told).lower()
    assert SECRET not in str(DefinitionInvalid(told)).lower()


def test_every_fault_is_told_in_our_words() -> None:
    wrong: list[Any] = [None, 1, 1.5, True, "x", [], ["x"], {}, {"x": 1}, 10**15, -1, "1m"]
    for sound in of_every_kind():
        for value in _with_each_leaf_replaced(sound, wrong):
            for fault in faults(value):
                assert fault.rule != "invalid"
                assert "nput" not in fault.message, fault


def _with_each_leaf_replaced(value: Json, by: list[Any]) -> list[Json]:
    made = []
    for way in _ways(value):
        for replacement in by:
            copied = deepcopy(value)
            inner: Any = copied
            for part in way[:-1]:
                inner = inner[part]
            inner[way[-1]] = replacement
            made.append(copied)
    return made


def _ways(value: Any) -> list[tuple[Any, ...]]:
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [way for key, item in inside for way in [(key,), *[(key, *rest) for rest in _ways(item)]]]


def test_no_more_than_a_hundred_faults_are_told() -> None:
    assert len(faults(definition() | {f"m{number}": 1 for number in range(3000)})) == 100


@pytest.mark.parametrize("value", [None, [], "x", 1, 1.5, True, [definition()]])
def test_what_is_no_object_is_no_definition(value: object) -> None:
    assert {path for path, _ in found(value)} == {""}


@pytest.mark.parametrize(
    ("poison", "path"),
    [("\x00", "steps[0].id"), ("\ud800", "steps[0].id"), (float("nan"), "steps[0].id"), (float("inf"), "steps[0].id"),
     (2**60, "steps[0].id"), (b"x", "steps[0].id"), ({"\ud800": 1}, "steps[0].id"), ({1: 1}, "steps[0].id")],
)  # fmt: skip
def test_what_cannot_be_stored_is_a_fault_and_no_crash(poison: object, path: str) -> None:
    assert found(definition(step("end", id=poison))) == {(path, "json")}


def test_nesting_without_end_is_a_fault_and_no_crash() -> None:
    deep: object = []
    for _ in range(900):
        deep = [deep]
    assert {rule for _, rule in found(definition(step("end", id=deep)))} == {"json"}


# --- what is stored --------------------------------------------------------------------------------------------------


def test_a_stored_revision_that_is_not_what_was_hashed_is_unavailable() -> None:
    text, sha256 = canonical(parse(onboarding()))
    outdated = json.dumps({"schema_version": 0})
    for stored, of in [
        (text.replace("72h", "73h"), sha256),
        (text, "0" * 64),
        (text, sha256.upper()),
        (text + " ", sha256),
        ("{", sha256_hex(b"{")),
        ("[" * 100_000, sha256_hex(b"[" * 100_000)),
        (outdated, sha256_hex(outdated.encode())),
    ]:
        with pytest.raises(Refused) as refused:
            load(stored, of)
        assert refused.value.category == "definition_unavailable"


def test_a_definition_cannot_be_changed() -> None:
    parsed = parse(onboarding())
    for changing in (parsed, parsed.steps[0], parsed.triggers[0], parsed.retry):
        with pytest.raises(ValueError, match="frozen"):
            setattr(changing, "type" if hasattr(changing, "type") else next(iter(type(changing).model_fields)), "x")
    assert isinstance(parsed.steps, tuple)


def test_twenty_steps_are_read_within_two_milliseconds() -> None:
    value = definition(*[step(KINDS[index % 11], id=f"s{index}") for index in range(20)])
    value["triggers"] = [schedule(each["type"]) for each in SELECTORS[:5]]
    assert min(_seconds(value) for _ in range(30)) < 0.002


def _seconds(value: Json) -> float:
    started = time.process_time()
    assert isinstance(parse(value), Definition)
    return time.process_time() - started
