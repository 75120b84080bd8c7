"""Definitions to test with: one with every kind of trigger, selector and step, and small ones around a single part."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

ONBOARDING = Path(__file__).parents[1] / "examples" / "onboarding.json"

Json = dict[str, Any]


def id_of(prefix: str, letter: str = "0") -> str:
    """An id that is always the same: `letter` tells apart those of one prefix."""
    return f"{prefix}_01jbh0ybgaravg3xcq0zdp2eg{letter}"


def onboarding() -> Json:
    """The example, as its file has it."""
    definition: Json = json.loads(ONBOARDING.read_text())
    return definition


SELECTORS: list[Json] = [
    {"type": "role_holders", "role_id": id_of("rol"), "organization_id": id_of("org"), "granted_before": "2160h"},
    {"type": "group_members", "group_id": id_of("grp"), "organization_id": id_of("org"), "joined_before": "2160h"},
    {"type": "organization_members", "organization_id": id_of("org"), "joined_before": "2160h"},
    {"type": "inactive_users", "organization_id": id_of("org"), "last_active_before": "2160h"},
    {"type": "never_signed_in", "organization_id": id_of("org"), "created_before": "2160h"},
    {"type": "guests", "organization_id": id_of("org"), "created_before": "2160h"},
    {"type": "suspended_users", "organization_id": id_of("org"), "suspended_before": "2160h"},
]

STEPS: list[Json] = [
    {
        "type": "assign_role",
        "role_id": id_of("rol"),
        "scope": "organization",
        "organization_id": id_of("org"),
        "expires_in": "1h30m",
        "retry": {"max_attempts": 1, "backoff": "1s"},
    },
    {"type": "remove_role", "role_id": id_of("rol"), "scope": "realm"},
    {"type": "add_to_group", "group_id": id_of("grp"), "organization_id": id_of("org"), "expires_in": "72h"},
    {"type": "remove_from_group", "group_id": id_of("grp"), "organization_id": id_of("org")},
    {"type": "remove_membership", "organization_id": id_of("org")},
    {"type": "suspend_user"},
    {"type": "notify", "notice": "welcome", "recipients": "approvers"},
    {"type": "approval", "approvers": [id_of("usr"), id_of("usr", "1")], "expires_in": "720h"},
    {"type": "wait", "for": "1m"},
    {"type": "call_webhook", "subscription_id": id_of("whk"), "timeout_ms": 100, "compensate": True, "retry": {}},
    {"type": "end"},
]


def step(kind: str, **members: Any) -> Json:
    """A step of that type with members of its own, changed by `members`; a member set to `...` is left out."""
    (base,) = (copy.deepcopy(each) for each in STEPS if each["type"] == kind)
    return {key: value for key, value in {"id": "a", **base, **members}.items() if value is not ...}


def schedule(kind: str = "organization_members", every: Any = "720h", **members: Any) -> Json:
    """A schedule trigger with that selector, changed by `members` as in `step`."""
    (base,) = (copy.deepcopy(each) for each in SELECTORS if each["type"] == kind)
    select = {key: value for key, value in {**base, **members}.items() if value is not ...}
    return {"type": "schedule", "every": every, "select": select}


def event(*event_types: str, **members: Any) -> Json:
    """An event trigger."""
    return {"type": "event", "event_types": list(event_types) or ["user.created"], **members}


def definition(*steps: Json, triggers: list[Json] | None = None, **members: Any) -> Json:
    """A definition of these steps, an `end` if there are none, that is started by hand."""
    return {
        "schema_version": 1,
        "triggers": [{"type": "manual"}] if triggers is None else triggers,
        "steps": list(steps) or [step("end")],
        **members,
    }


def of_every_kind() -> list[Json]:
    """Definitions that together hold every kind of trigger, selector and step, with every member."""
    steps = [step(each["type"], id=f"s{index}") for index, each in enumerate(STEPS)]
    schedules = [schedule(each["type"]) for each in SELECTORS]
    return [
        onboarding(),
        definition(*steps, triggers=[event("user.created", organization_id=id_of("org")), *schedules[:4]]),
        definition(triggers=[*schedules[4:], {"type": "manual"}], retry={"max_attempts": 10, "backoff": "1h"}),
    ]
