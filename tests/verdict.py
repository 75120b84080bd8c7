"""The verdict on races: in commit order no effect without authority, and no refusal with it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from tests.diary import Diary, Entry
from tests.driver import AnyRow, rows
from tests.losses import Case
from tests.races import Loss
from tests.staging import Stage

ATTEMPT = "workflow_step_attempts"


@dataclass
class Record:
    """All that is written of one case."""

    case: Case
    fate: str
    run: AnyRow
    effects: list[Entry] = field(default_factory=list)
    """What the run did, and its attempts that had the right to."""
    refusals: list[Entry] = field(default_factory=list)
    """Its failed attempts."""
    losses: list[Entry] = field(default_factory=list)
    """What went from its publisher, or from the group that its publisher holds it by."""
    expiry: Entry | None = None
    """The change that made what it rests on expire."""
    undone: bool = False
    """Whether what its first step gave was taken back."""

    def did(self, step_id: str) -> bool:
        """Whether that step had its effect."""
        return any(entry.of == ATTEMPT and entry.row["step_id"] == step_id for entry in self.effects)

    def take(self, entry: Entry) -> None:
        """An entry of the diary that may be about it."""
        what, row = (entry.did, entry.of), entry.row
        if row.get("run_id") == self.case.run:
            self._take_attempt(entry) if entry.of == ATTEMPT else self.effects.append(entry)
        elif what == ("DELETE", "group_roles"):
            self.losses.append(entry)
        elif entry.user_id == self.case.subject:
            self._take_of_subject(entry, ours=(row.get("step_key") or "").startswith(self.case.run))
        elif entry.did == "DELETE" or what == ("UPDATE", "users"):
            self.losses.append(entry)
        elif what == ("UPDATE", "role_assignments"):
            self.expiry = entry

    def _take_of_subject(self, entry: Entry, *, ours: bool) -> None:
        """What the subject had, was made when the stage was set; what it gets is the run's."""
        if ours and entry.did == "DELETE":
            self.undone = True
        elif ours or entry.did != "INSERT":
            self.effects.append(entry)

    def _take_attempt(self, entry: Entry) -> None:
        """A call is an effect when it is begun: what is recorded then is what lets it go out."""
        begun = "started" if entry.row["step_type"] == "call_webhook" else "succeeded"
        if entry.row["state"] == begun and entry.before.get("state") != begun:
            self.effects.append(entry)
        elif entry.row["state"] == "failed":
            self.refusals.append(entry)


def moment(attempt: Entry) -> datetime:
    """The database's clock when the attempt was decided."""
    return datetime.fromisoformat(attempt.row["finished_at"] or attempt.row["started_at"])


def had_gone(record: Record, entry: Entry) -> bool:
    """Whether the publisher's authority had gone when the entry was committed."""
    if record.case.spare:
        return False
    if any(loss.place < entry.place for loss in record.losses):
        return True
    return entry.of == ATTEMPT and record.expiry is not None and had_expired(record.expiry, entry)


def had_expired(expiry: Entry, attempt: Entry) -> bool:
    """Whether it had expired when the attempt was decided, or was made to between the decision and its commit."""
    decided_at = moment(attempt)
    if datetime.fromisoformat(expiry.row["expires_at"]) <= decided_at:
        return True
    return expiry.place < attempt.place and expiry.at > decided_at


def accusations(record: Record) -> Iterator[str]:
    """Everything that is wrong with a case."""
    case, run = record.case, record.run
    yield from (f"{case}: {each.of} without authority" for each in record.effects if had_gone(record, each))
    yield from (f"{case}: refused with authority" for each in record.refusals if not had_gone(record, each))
    together = {entry.xid for entry in record.effects if entry.of == ATTEMPT}
    yield from (f"{case}: {each.of} without its attempt" for each in record.effects if each.xid not in together)
    if record.did("a"):
        expected, refusals = ("succeeded", None), 0
    else:
        expected, refusals = ("compensated" if record.did("first") else "failed", "publisher_lacks_authority"), 1
    if (run.state, run.error_category) != expected or len(record.refusals) != refusals:
        yield f"{case}: {run.state}, {run.error_category} after {len(record.refusals)} refusals"
    if record.undone != (expected[0] == "compensated") and case.kind != "remove_membership":
        yield f"{case}: {'undone' if record.undone else 'not undone'}"


def verdict(stage: Stage, diary: Diary, losses: Sequence[Loss]) -> tuple[list[str], Counter[tuple[str, bool]]]:
    """Everything that is wrong, and how often which fate had which outcome (whether the step had its effect)."""
    query = "SELECT * FROM workflow_runs WHERE realm_id = :realm"
    runs = {row.id: row for row in rows(stage.acme.database, query, realm=stage.acme.id)}
    records = [Record(loss.case, loss.fate, runs[loss.case.run]) for loss in losses]
    about = {id_: record for record in records for id_ in ids_of(record.case)}
    for entry in diary.entries():
        for id_ in {entry.user_id, entry.row.get("run_id"), entry.row.get("group_id")} & about.keys():
            about[id_].take(entry)
    wrong = [each for record in records for each in accusations(record)]
    called = Counter(str(call.body["run_id"]) for call in stage.endpoint.of("execute"))
    begun = Counter(record.case.run for record in records if record.case.kind == "call_webhook" and record.did("a"))
    wrong += [
        f"{run_id}: called {called[run_id]} times" for run_id in called | begun if called[run_id] != begun[run_id]
    ]
    return wrong, Counter((record.fate, record.did("a")) for record in records)


def ids_of(case: Case) -> Iterator[str]:
    """What the diary may know the case by."""
    yield from filter(None, (case.publisher, case.subject, case.run, case.parent))
