"""Step calls as the wire contract has them."""

from __future__ import annotations

import dataclasses
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from standardwebhooks import Webhook

from engine.egress.destination import Destination
from engine.egress.signing import Secret, new_secret
from engine.egress.step_call import StepCall

CONTRACT = json.loads((Path(__file__).parents[2] / "api/contracts/step-call.v1.json").read_text())
SEED = Path(__file__).parents[3] / "shared/spec/step-call.v1.seed.json"

TAIL = "01jbh0ybgaravg3xcq0zdp2egd"
CALL = StepCall(
    action="execute",
    realm_id=f"rlm_{TAIL}",
    organization_id=f"org_{TAIL}",
    workflow_id=f"wfl_{TAIL}",
    revision=3,
    run_id=f"wrn_{TAIL}",
    step_id="sync",
    attempt_id=f"wsa_{TAIL}",
    attempt=2,
    subject_id=f"usr_{TAIL}",
    trigger_type="event",
    event_type="organization.membership.added",
    event_id=f"obx_{TAIL}",
    sent_at=datetime(2026, 10, 10, 12, 10, 0, 987654, tzinfo=UTC),
)
COMPENSATION = dataclasses.replace(CALL, action="compensate", attempt=1)
MANUAL = dataclasses.replace(CALL, organization_id=None, trigger_type="manual", event_type=None, event_id=None)


def _id(prefix: str) -> dict[str, Any]:
    return {"type": "string", "pattern": f"^{prefix}_[0-9a-z]{{26}}$"}


def _record(required: list[str], properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "required": required, "additionalProperties": False, "properties": properties}


TEXT, COUNT = {"type": "string"}, {"type": "integer", "minimum": 1}
MEANING = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    **_record(
        [
            *("type", "contract_version", "action", "realm_id", "workflow_id", "revision", "run_id", "step_id"),
            *("attempt", "idempotency_key", "subject", "trigger", "sent_at"),
        ],
        {
            "type": {"const": "workflow.step"},
            "contract_version": {"const": 1},
            "action": {"enum": ["execute", "compensate"]},
            "realm_id": _id("rlm"),
            "organization_id": _id("org"),
            "workflow_id": _id("wfl"),
            "revision": COUNT,
            "run_id": _id("wrn"),
            "step_id": TEXT,
            "attempt": COUNT,
            "idempotency_key": TEXT,
            "subject": _record(["type", "id"], {"type": {"const": "user"}, "id": _id("usr")}),
            "trigger": _record(
                ["type"],
                {"type": {"enum": ["event", "schedule", "manual"]}, "event_type": TEXT, "event_id": _id("obx")},
            ),
            "sent_at": {"type": "string", "format": "date-time"},
        },
    ),
}
"""What the source's contract allows and demands, without its words."""


def meaning(schema: Any, *, of_members: bool = False) -> Any:
    """A schema without what only describes it; lists whose order means nothing are sorted."""
    if not isinstance(schema, dict):
        return schema
    kept = {}
    for name, value in schema.items():
        if not of_members and (name in {"$id", "title", "description", "examples"} or name.startswith("x-")):
            continue
        ordered = name in {"required", "enum"} and not of_members
        kept[name] = sorted(value) if ordered else meaning(value, of_members=name == "properties" and not of_members)
    return kept


def valid(contract: Any, body: Any) -> bool:
    checker = Draft202012Validator.FORMAT_CHECKER
    return Draft202012Validator(contract, format_checker=checker).is_valid(body)


def test_our_contract_means_what_the_source_means_in_other_words() -> None:
    assert meaning(CONTRACT) == meaning(MEANING)
    assert CONTRACT["$id"].startswith("urn:tenure:")


@pytest.mark.skipif(not SEED.exists(), reason="the source lies beside the repository, not in it")
def test_our_contract_means_what_the_source_itself_says() -> None:
    seed = json.loads(SEED.read_text())
    assert meaning(CONTRACT) == meaning(seed)
    assert CONTRACT["$id"] != seed["$id"]
    words = {value["description"] for value in CONTRACT["properties"].values() if "description" in value}
    assert not words & {value.get("description") for value in seed["properties"].values()}
    for call in (CALL, COMPENSATION, MANUAL):
        assert valid(seed, json.loads(call.body()))


@pytest.mark.parametrize("call", [CALL, COMPENSATION, MANUAL, dataclasses.replace(MANUAL, trigger_type="schedule")])
def test_a_body_fulfils_the_contract(call: StepCall) -> None:
    assert valid(CONTRACT, json.loads(call.body()))


def test_the_contract_refuses_a_body_with_one_thing_wrong() -> None:
    body = json.loads(CALL.body())
    for member in CONTRACT["required"]:
        assert not valid(CONTRACT, {name: value for name, value in body.items() if name != member})
    for wrong in (
        *({"more": 1}, {"attempt": 0}, {"revision": "3"}, {"action": "undo"}, {"realm_id": f"org_{TAIL}"}),
        *({"sent_at": "yesterday"}, {"subject": {"type": "group", "id": f"usr_{TAIL}"}}, {"organization_id": None}),
    ):
        assert not valid(CONTRACT, {**body, **wrong})


def test_a_body_is_compact_json_with_exactly_these_members() -> None:
    assert CALL.body().decode() == (
        '{"type":"workflow.step","contract_version":1,"action":"execute",'
        f'"realm_id":"rlm_{TAIL}","organization_id":"org_{TAIL}","workflow_id":"wfl_{TAIL}","revision":3,'
        f'"run_id":"wrn_{TAIL}","step_id":"sync","attempt":2,"idempotency_key":"wrn_{TAIL}.sync",'
        f'"subject":{{"type":"user","id":"usr_{TAIL}"}},'
        f'"trigger":{{"type":"event","event_type":"organization.membership.added","event_id":"obx_{TAIL}"}},'
        '"sent_at":"2026-10-10T12:10:00Z"}'
    )


def test_what_a_run_does_not_have_is_left_out() -> None:
    body = json.loads(MANUAL.body())
    assert "organization_id" not in body
    assert body["trigger"] == {"type": "manual"}


def test_the_headers_are_those_of_the_contract_and_verify() -> None:
    old, new = new_secret(), new_secret()
    call = dataclasses.replace(CALL, sent_at=datetime.now(UTC))
    headers = call.headers([Secret.parse(new), Secret.parse(old)])
    assert set(headers) == {
        *("Content-Type", "Webhook-Id", "Webhook-Timestamp", "Webhook-Signature", "Idempotency-Key", "User-Agent"),
    }
    assert headers["Content-Type"] == "application/json"
    assert headers["User-Agent"] == "ProudAuth-Workflows/1"
    assert headers["Webhook-Id"] == f"wsa_{TAIL}"
    assert headers["Idempotency-Key"] == f"wrn_{TAIL}.sync"
    for secret in (old, new):
        assert Webhook(secret).verify(call.body(), headers)["step_id"] == "sync"


def test_the_key_is_the_same_for_every_attempt_and_the_message_id_is_not() -> None:
    again = dataclasses.replace(CALL, attempt=3, attempt_id=CALL.attempt_id[:-1] + "e")
    assert again.idempotency_key == CALL.idempotency_key
    assert again.message_id != CALL.message_id


def test_a_compensation_has_a_key_and_a_message_id_of_its_own() -> None:
    headers = COMPENSATION.headers([Secret.parse(new_secret())])
    body = json.loads(COMPENSATION.body())
    assert headers["Idempotency-Key"] == body["idempotency_key"] == f"wrn_{TAIL}.sync.compensate"
    assert headers["Webhook-Id"] == f"wsa_{TAIL}c"
    assert (body["action"], body["attempt"]) == ("compensate", 1)


def test_an_outgoing_call_carries_what_was_signed_and_shows_none_of_it() -> None:
    secret = new_secret()
    call = dataclasses.replace(CALL, sent_at=datetime.now(UTC))
    outgoing = call.outgoing(Destination.parse("https://h.example/in?key=1"), [Secret.parse(secret)])
    Webhook(secret).verify(outgoing.body, dict(outgoing.headers))
    assert repr(outgoing) == (
        "OutgoingCall(destination=Destination(scheme='https', host='h.example', port=443), allow_private=False)"
    )


@pytest.mark.parametrize(
    "wrong",
    [
        {"realm_id": f"rlm_{TAIL}\n"},
        {"subject_id": f"org_{TAIL}"},
        {"organization_id": ""},
        {"attempt": 0},
        {"revision": 0},
        {"sent_at": datetime(2026, 10, 10)},  # noqa: DTZ001
        {"sent_at": datetime.fromisoformat("2026-10-10T12:00:00+02:00")},
    ],
)
def test_a_call_that_would_break_the_contract_is_a_bug(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"step call|count from 1"):
        dataclasses.replace(CALL, **wrong)


def test_the_moment_on_the_wire_is_the_signed_one() -> None:
    call = dataclasses.replace(CALL, sent_at=datetime.now(UTC))
    stamp = int(call.headers([Secret.parse(new_secret())])["Webhook-Timestamp"])
    written = datetime.fromisoformat(json.loads(call.body())["sent_at"].replace("Z", "+00:00"))
    assert written - datetime.fromtimestamp(stamp, UTC) == timedelta(0)
