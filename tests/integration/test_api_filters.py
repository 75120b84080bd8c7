"""The filters of lists: each finds exactly what it says, and says it so that an index can serve it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import event as sql_event

from db.session import Database
from db.statements import reads_runs
from db.tables.runs import RUN_STATES, UNSUCCESSFUL_STATES
from tests.calling import Api, paths
from tests.definitions import definition, event, step
from tests.driver import drain, many_runs, owner, rows, working
from tests.factories import TestRealm, a_realm

UNFINISHED = [state for state in RUN_STATES if state not in ("succeeded", *UNSUCCESSFUL_STATES)]


@pytest.fixture(scope="module")
def peopled(api: Api) -> Api:
    """A realm with three runs in every state, two of the waiting ones paused, made by all kinds of triggers."""
    realm = a_realm(api.realm.database)
    workflow = realm.published(definition(step("end"), triggers=[event("user.suspended"), {"type": "manual"}]))
    runs = many_runs(realm, workflow, realm.users(3 * len(RUN_STATES)))
    for place, run in enumerate(runs):
        state = RUN_STATES[place % len(RUN_STATES)]
        _become(realm, run, state, paused=state == "waiting" and place >= len(RUN_STATES))
    for _ in range(3):
        realm.event("user.suspended", realm.user())
    with working(realm.database) as worker:
        drain(worker, realm)
    return api.at(realm)


def _become(realm: TestRealm, run: str, state: str, *, paused: bool) -> None:
    finished = state not in UNFINISHED
    owner(
        realm.database,
        """UPDATE workflow_runs SET state = :state, paused = :paused,
             finished_at = CASE WHEN :finished THEN now() END,
             due_at = CASE WHEN :finished OR :paused THEN NULL ELSE now() + interval '1 day' END WHERE id = :run""",
        run=run,
        state=state,
        paused=paused,
        finished=finished,
    )


def everything(api: Api, path: str, **query: Any) -> list[Any]:
    """All pages."""
    found, cursor = [], None
    while True:
        page = api.get(path, limit=2, **query, **({} if cursor is None else {"cursor": cursor})).json()
        found += page["items"]
        cursor = page["next_cursor"]
        if cursor is None:
            return found


def stored(api: Api, table: str, where: str, **given: Any) -> list[str]:
    """Ids of the realm's rows of which that is true, the newest first."""
    order = "position" if table == "audit_events" else "id"
    query = f"SELECT id FROM {table} WHERE realm_id = :realm AND {where} ORDER BY {order} DESC"
    return [row.id for row in rows(api.realm.database, query, realm=api.realm.id, **given)]


@pytest.mark.parametrize("lately", [0, 1, reads_runs.LATELY])
@pytest.mark.parametrize("state", RUN_STATES)
def test_runs_by_state(peopled: Api, state: str, lately: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """However far back they lie."""
    monkeypatch.setattr(reads_runs, "LATELY", lately)
    found = everything(peopled, "/workflow-runs", state=state)
    assert [run["id"] for run in found] == stored(peopled, "workflow_runs", "state = :state", state=state)
    assert len(found) >= 3
    assert {run["state"] for run in found} == {state}


def test_runs_that_are_paused_are_among_those_of_their_state(peopled: Api) -> None:
    assert [run["paused"] for run in everything(peopled, "/workflow-runs", state="waiting")] == [True, True, False]


@pytest.mark.parametrize("state", ["waiting", "failed", "succeeded"])
def test_runs_by_state_and_all_the_rest(peopled: Api, state: str) -> None:
    one = everything(peopled, "/workflow-runs", state=state, trigger="manual")[1]
    same = {"workflow_id": one["workflow_id"], "subject_id": one["subject_id"], "trigger": one["trigger_type"]}
    assert everything(peopled, "/workflow-runs", state=state, since=one["created_at"], **same) == [one]
    for name, other in (
        ("workflow_id", peopled.realm.workflow()),
        ("subject_id", peopled.realm.user()),
        ("trigger", "schedule"),
    ):
        assert everything(peopled, "/workflow-runs", state=state, **{**same, name: other}) == []


@pytest.mark.parametrize("trigger", ["event", "manual", "schedule"])
def test_runs_by_trigger(peopled: Api, trigger: str) -> None:
    found = [run["id"] for run in everything(peopled, "/workflow-runs", trigger=trigger)]
    assert found == stored(peopled, "workflow_runs", "trigger_type = :trigger", trigger=trigger)
    assert len(found) == {"event": 3, "manual": 30, "schedule": 0}[trigger]


@pytest.mark.parametrize(("path", "table"), [("/workflow-runs", "workflow_runs"), ("/audit-events", "audit_events")])
def test_since_a_moment_in_any_offset(peopled: Api, path: str, table: str) -> None:
    whole = everything(peopled, path)
    moments = [datetime.fromisoformat(item["created_at"]) for item in (whole[0], whole[len(whole) // 2], whole[-1])]
    for moment in (*moments, moments[0] + timedelta(microseconds=1), moments[-1] - timedelta(days=400)):
        for spelled in (moment.isoformat().replace("+00:00", "Z"), _at_two_hours(moment)):
            found = [item["id"] for item in everything(peopled, path, since=spelled)]
            assert found == stored(peopled, table, "created_at >= :moment", moment=moment)
    assert paths(peopled.get(path, since="yesterday")) == ["since"]


def _at_two_hours(moment: datetime) -> str:
    return (moment + timedelta(hours=2)).replace(tzinfo=None).isoformat() + "+02:00"


def test_approvals_by_state(api: Api) -> None:
    caller = api.at(a_realm(api.realm.database))
    realm, approver = caller.realm, caller.realm.user()
    asks = realm.published(definition(step("approval", approvers=[approver]), step("end", id="b")))
    many_runs(realm, asks, realm.users(10))
    with working(realm.database) as worker:
        drain(worker, realm)
    decider = caller.by(approver, "account")
    pending = [item["id"] for item in everything(caller, "/workflow-approvals", state="pending")]
    assert len(pending) == 10
    for place, id_ in enumerate(pending[:6]):
        verdict = "approve" if place % 2 else "reject"
        assert decider.post(f"/me/workflow-approvals/{id_}/{verdict}").status_code == 200
    for id_, state in zip(pending[6:8], ("expired", "cancelled"), strict=True):
        changed = "UPDATE workflow_approvals SET state = :state, ended_at = now() WHERE id = :id"
        owner(realm.database, changed, id=id_, state=state)
    counts = {"pending": 2, "approved": 3, "rejected": 3, "expired": 1, "cancelled": 1}
    for state, count in counts.items():
        found = [item["id"] for item in everything(caller, "/workflow-approvals", state=state)]
        assert found == stored(caller, "workflow_approvals", "state = :state", state=state)
        assert len(found) == count


# how it is asked


@pytest.fixture
def asked(module_database: Database) -> Iterator[list[str]]:
    """The statements that the API has sent."""
    statements: list[str] = []

    def note(*given: Any) -> None:
        statements.append(given[2])

    sql_event.listen(module_database.engine, "before_cursor_execute", note)
    yield statements
    sql_event.remove(module_database.engine, "before_cursor_execute", note)


WORDS = [
    ("/workflow-runs", {"state": "failed"}, "state = 'failed'"),
    ("/workflow-runs", {"state": "waiting"}, "due_at IS NOT NULL OR workflow_runs.paused"),
    ("/workflow-runs", {"trigger": "manual"}, "trigger_type = 'manual'"),
    ("/workflow-runs", {"since": "2026-10-11T09:00:00Z"}, "created_at >= '2026-10-11 09:00:00+00:00'"),
    ("/workflow-approvals", {"state": "pending"}, "state = 'pending'"),
    ("/outbox-events", {"state": "set_aside"}, "set_aside_at IS NOT NULL"),
    ("/outbox-events", {"state": "waiting"}, "dispatched_at IS NULL AND outbox_events.set_aside_at IS NULL"),
    ("/audit-events", {"since": "2026-10-11T09:00:00Z"}, "created_at >= '2026-10-11 09:00:00+00:00'"),
]


@pytest.mark.parametrize(("path", "query", "words"), WORDS, ids=str)
def test_what_an_index_is_about_stands_in_the_statement_and_not_among_its_parameters(
    api: Api, asked: list[str], path: str, query: dict[str, str], words: str
) -> None:
    """A statement that is prepared may be planned once for all values: then a parameter proves nothing to a partial index."""
    assert api.get(path, **query).status_code == 200
    assert len([statement for statement in asked if words in statement]) == 1, asked[-1]
