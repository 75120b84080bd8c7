"""Runs: claim, renew, hand back, lock under a lease, save."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import BigInteger, Boolean, Connection, bindparam, case, exists, func, literal_column, select, true
from sqlalchemy.types import Float, Integer

from db.rows import AnyRow
from db.statements import gates
from db.statements.bulk import Bulk, arrays, unnested, update_rows
from db.statements.bulk import keys as keys_of
from db.tables import Approval, Realm, StepAttempt, Workflow, WorkflowRevision, WorkflowRun, table
from db.tables.columns import ID, MOMENT, WORD

realms = table(Realm)
runs = table(WorkflowRun)
attempts = table(StepAttempt)
approvals = table(Approval)
workflows = table(Workflow)
revisions = table(WorkflowRevision)

Lease = tuple[str, str, int]
"""Realm, run and fence."""

_lease_end = func.statement_timestamp() + func.make_interval(0, 0, 0, 0, 0, 0, bindparam("lease", type_=Float))

# Claim. The realms come in a round that starts behind the one served last; each gives at most its share, taken from the head
# of its own part of the index. The limit stops the walk, so no row is locked that is not taken. What is due includes expired
# leases: while a run is leased, its due_at is the end of the lease. statement_timestamp() and not clock_timestamp(): only a
# stable function bounds an index scan.
_round = (
    select(realms.c.id)
    .order_by(realms.c.id <= bindparam("after", type_=ID), realms.c.id)
    .offset(0)
    .subquery("realms_in_turn")
)
_due = (
    select(runs.c.realm_id, runs.c.id, runs.c.lease_owner)
    .where(runs.c.realm_id == _round.c.id, runs.c.due_at <= func.statement_timestamp())
    .order_by(runs.c.due_at)
    .limit(bindparam("share", type_=Integer))
    .with_for_update(of=runs, skip_locked=True)
    .correlate(_round)
    .lateral("due")
)
_claimed = (
    select(_due.c.realm_id, _due.c.id, _due.c.lease_owner)
    .select_from(_round.join(_due, true()))
    .limit(bindparam("batch", type_=Integer))
    .cte("claimed")
)
_claim = (
    runs.update()
    .values(
        lease_owner=bindparam("owner", type_=WORD),
        lease_expires_at=_lease_end,
        due_at=_lease_end,
        fence=runs.c.fence + 1,
    )
    .where(runs.c.realm_id == _claimed.c.realm_id, runs.c.id == _claimed.c.id)
    .returning(
        runs.c.realm_id,
        runs.c.id,
        runs.c.fence,
        runs.c.interruptions,
        _claimed.c.lease_owner.is_not(None).label("taken_over"),
    )
)


def claim(connection: Connection, *, owner: str, lease: float, batch: int, share: int, after: str) -> Sequence[AnyRow]:
    """Lease up to `batch` due runs, at most `share` of one realm, for `lease` seconds. The fence of each grows by one."""
    given = {"owner": owner, "lease": lease, "batch": batch, "share": share, "after": after}
    return connection.execute(_claim, given).all()


_first_due = (
    select(runs.c.due_at)
    .where(runs.c.realm_id == realms.c.id, runs.c.due_at.is_not(None))
    .order_by(runs.c.due_at)
    .limit(1)
    .correlate(realms)
    .lateral("first_due")
)
_next_due = select(
    func.extract("epoch", func.min(_first_due.c.due_at) - func.clock_timestamp()).cast(Float)
).select_from(realms.join(_first_due, true()))


def next_due_in(connection: Connection) -> float | None:
    """Seconds until the next run is due, negative when one is overdue; None when nothing is."""
    found = connection.execute(_next_due).scalar()
    return None if found is None else float(found)


_leases = unnested({"realm_id": ID, "id": ID, "fence": BigInteger()}, "held")
_is_held = (
    (runs.c.realm_id == _leases.c.realm_id)
    & (runs.c.id == _leases.c.id)
    & (runs.c.fence == _leases.c.fence)
    & (runs.c.lease_owner == bindparam("owner", type_=WORD))
    & (runs.c.lease_expires_at > func.clock_timestamp())
)


def _columns(leases: Sequence[Lease]) -> dict[str, Any]:
    ordered = sorted(leases)
    return arrays(
        {
            "realm_id": [lease[0] for lease in ordered],
            "id": [lease[1] for lease in ordered],
            "fence": [lease[2] for lease in ordered],
        }
    )


# Renewals must not wait for rows that a round has locked: that round is about to commit, and its leases are young enough.
_renewable = (
    select(runs.c.realm_id, runs.c.id)
    .join(_leases, _is_held)
    .with_for_update(of=runs, skip_locked=True)
    .cte("renewable")
)
_renew = (
    runs.update()
    .values(lease_expires_at=_lease_end, due_at=_lease_end)
    .where(runs.c.realm_id == _renewable.c.realm_id, runs.c.id == _renewable.c.id)
)


def renew(connection: Connection, leases: Sequence[Lease], *, owner: str, lease: float) -> int:
    """Extend the leases that are still held, to `lease` seconds from now. Returns how many."""
    return int(connection.execute(_renew, {**_columns(leases), "owner": owner, "lease": lease}).rowcount)


_give_back = (
    runs.update()
    .values(lease_owner=None, lease_expires_at=None, due_at=func.clock_timestamp())
    .where(runs.c.realm_id == _leases.c.realm_id, runs.c.id == _leases.c.id)
    .where(runs.c.fence == _leases.c.fence, runs.c.lease_owner == bindparam("owner", type_=WORD))
)


def give_back(connection: Connection, leases: Sequence[Lease], *, owner: str) -> int:
    """Hand back leases one by one; their runs are due at once."""
    return int(connection.execute(_give_back, {**_columns(leases), "owner": owner}).rowcount)


_give_back_all = (
    runs.update()
    .values(lease_owner=None, lease_expires_at=None, due_at=func.clock_timestamp())
    .where(runs.c.lease_owner == bindparam("owner", type_=WORD))
    .where(~exists().where(runs.c.realm_id == _leases.c.realm_id, runs.c.id == _leases.c.id))
)


def give_back_all(connection: Connection, *, owner: str, but: Sequence[Lease] = ()) -> int:
    """Hand back every lease of an owner (of a worker that stops, or was seen to die), except those in `but`."""
    return int(connection.execute(_give_back_all, {**_columns(but), "owner": owner}).rowcount)


_attempt = (
    select(attempts)
    .where(
        attempts.c.realm_id == runs.c.realm_id,
        attempts.c.run_id == runs.c.id,
        attempts.c.step_index == runs.c.step_index,
    )
    .order_by((attempts.c.state == "succeeded").desc(), attempts.c.attempt.desc())
    .limit(1)
    .correlate(runs)
    .lateral("latest")
)
_lock = (
    select(
        runs.c.realm_id,
        runs.c.id,
        runs.c.workflow_id,
        runs.c.revision,
        runs.c.publisher_id,
        runs.c.subject_id,
        runs.c.organization_id,
        runs.c.trigger_type,
        runs.c.event_type,
        runs.c.event_id,
        runs.c.input_version,
        runs.c.depth,
        runs.c.state,
        runs.c.step_index,
        runs.c.context,
        runs.c.error_category,
        runs.c.last_error,
        runs.c.cancel_requested_at.is_not(None).label("cancel_requested"),
        runs.c.fence,
        runs.c.interruptions,
        _attempt.c.id.label("attempt_id"),
        _attempt.c.step_id.label("attempt_step_id"),
        _attempt.c.step_type.label("attempt_step_type"),
        _attempt.c.attempt.label("attempt_number"),
        _attempt.c.state.label("attempt_state"),
        _attempt.c.idempotency_key.label("attempt_key"),
        _attempt.c.input.label("attempt_input"),
    )
    .select_from(runs.join(_leases, _is_held).outerjoin(_attempt, true()))
    .order_by(runs.c.realm_id, runs.c.id)
    .with_for_update(of=runs)
)
_clock = select(func.clock_timestamp())


def now(connection: Connection) -> Any:
    """The database's clock, this moment."""
    return connection.execute(_clock).scalar_one()


def lock_leased(connection: Connection, leases: Sequence[Lease], *, owner: str) -> Sequence[AnyRow]:
    """The runs still held under these leases, locked, each with the latest attempt of the step it is at."""
    return connection.execute(_lock, {**_columns(leases), "owner": owner}).all()


_keys = unnested({"realm_id": ID, "id": ID}, "wanted")


_workflows = (
    select(workflows.c.realm_id, workflows.c.id, workflows.c.state)
    .join(_keys, (workflows.c.realm_id == _keys.c.realm_id) & (workflows.c.id == _keys.c.id))
    .order_by(workflows.c.realm_id, workflows.c.id)
    .with_for_update(of=workflows, read=True)
)


def lock_workflows(connection: Connection, keys: Sequence[tuple[str, str]]) -> Sequence[AnyRow]:
    """Workflows FOR SHARE: none can be disabled between this and the commit of what its runs do."""
    gates.share(connection, keys)
    return connection.execute(_workflows, keys_of(keys)).all()


_revision_keys = unnested({"realm_id": ID, "workflow_id": ID, "number": Integer()}, "wanted")
_definitions = select(
    revisions.c.realm_id,
    revisions.c.workflow_id,
    revisions.c.number,
    revisions.c.definition,
    revisions.c.definition_hash,
).join(
    _revision_keys,
    (revisions.c.realm_id == _revision_keys.c.realm_id)
    & (revisions.c.workflow_id == _revision_keys.c.workflow_id)
    & (revisions.c.number == _revision_keys.c.number),
)


def definitions(connection: Connection, keys: Sequence[tuple[str, str, int]]) -> Sequence[AnyRow]:
    """Stored definitions by realm, workflow and revision."""
    given: dict[str, list[Any]] = {
        "realm_id": [key[0] for key in keys],
        "workflow_id": [key[1] for key in keys],
        "number": [key[2] for key in keys],
    }
    return connection.execute(_definitions, arrays(given)).all()


_approvals = (
    select(
        approvals.c.realm_id,
        approvals.c.run_id,
        approvals.c.step_index,
        approvals.c.id,
        approvals.c.state,
        approvals.c.expires_at,
        approvals.c.decided_by,
    )
    .join(_keys, (approvals.c.realm_id == _keys.c.realm_id) & (approvals.c.run_id == _keys.c.id))
    .order_by(approvals.c.realm_id, approvals.c.id)
    .with_for_update(of=approvals)
)


def lock_approvals(connection: Connection, keys: Sequence[tuple[str, str]]) -> Sequence[AnyRow]:
    """All approvals of runs, locked: nobody decides while their run moves on."""
    return connection.execute(_approvals, keys_of(keys)).all()


# What a compensating run has to undo next (the newest success whose compensation is pending), and what came of the rest.
_newest = (
    select(attempts)
    .where(
        attempts.c.realm_id == _keys.c.realm_id,
        attempts.c.run_id == _keys.c.id,
        attempts.c.state == "succeeded",
        attempts.c.compensation_state == "pending",
    )
    .order_by(attempts.c.step_index.desc())
    .limit(1)
    .correlate(_keys)
    .lateral("newest")
)
_outcome = (
    select(
        func.coalesce(func.bool_or(attempts.c.compensation_state == "done"), literal_column("false")).label("undone"),
        func.coalesce(func.bool_or(attempts.c.compensation_state == "failed"), literal_column("false")).label("stuck"),
    )
    .where(attempts.c.realm_id == _keys.c.realm_id, attempts.c.run_id == _keys.c.id)
    .correlate(_keys)
    .lateral("outcome")
)
_compensations = select(
    _keys.c.realm_id.label("realm_id"),
    _keys.c.id.label("run_id"),
    _outcome.c.undone,
    _outcome.c.stuck,
    _newest.c.id.label("attempt_id"),
    _newest.c.step_index,
    _newest.c.step_id,
    _newest.c.step_type,
    _newest.c.attempt,
    _newest.c.idempotency_key,
    _newest.c.input,
    _newest.c.compensation_strategy,
    _newest.c.compensation_attempts,
    _newest.c.compensation_started_at.is_not(None).label("is_out"),
).select_from(_keys.join(_outcome, true()).outerjoin(_newest, true()))


def compensations(connection: Connection, keys: Sequence[tuple[str, str]]) -> Sequence[AnyRow]:
    """For runs that compensate: what to undo next, whether anything was undone, whether a compensation failed."""
    return connection.execute(_compensations, keys_of(keys)).all()


_given = unnested(
    {
        "realm_id": ID,
        "id": ID,
        "fence": BigInteger(),
        "owner": WORD,
        "state": WORD,
        "step_index": Integer(),
        "context": runs.c.context.type,
        "error_category": WORD,
        "last_error": WORD,
        "due_at": MOMENT,
        "keep": Boolean(),
        "finished": Boolean(),
        "paused": Boolean(),
        "interruptions": Integer(),
    }
)
_save = (
    runs.update()
    .values(
        state=_given.c.state,
        step_index=_given.c.step_index,
        context=_given.c.context.cast(runs.c.context.type),
        error_category=_given.c.error_category,
        last_error=_given.c.last_error,
        due_at=case((_given.c.keep, runs.c.due_at), else_=_given.c.due_at),
        lease_owner=case((_given.c.keep, runs.c.lease_owner), else_=None),
        lease_expires_at=case((_given.c.keep, runs.c.lease_expires_at), else_=None),
        finished_at=case((_given.c.finished, func.clock_timestamp()), else_=None),
        paused=_given.c.paused,
        interruptions=_given.c.interruptions,
    )
    .where(
        runs.c.realm_id == _given.c.realm_id,
        runs.c.id == _given.c.id,
        runs.c.fence == _given.c.fence,
        runs.c.lease_owner == _given.c.owner,
        runs.c.lease_expires_at > func.clock_timestamp(),
    )
)
SAVE_RUN = Bulk(
    name="save run",
    statement=_save,
    columns=(
        "realm_id",
        "id",
        "fence",
        "owner",
        "state",
        "step_index",
        "context",
        "error_category",
        "last_error",
        "due_at",
        "keep",
        "finished",
        "paused",
        "interruptions",
    ),
    documents=frozenset({"context"}),
    arrays=frozenset(),
)
"""A run moves on. The lease stays as it is (`keep`; so the row keeps its place in every index) or ends, and then `due_at`
says when the run is next due. Hits no row once the lease is lost: owner, fence and the database's clock must all agree."""

COUNT_INTERRUPTION = update_rows(
    runs,
    ["realm_id", "id", "fence", "lease_owner"],
    ["interruptions"],
    "workflow_runs.lease_expires_at > clock_timestamp()",
    name="count interruption",
)
"""Written before a run that a worker died on is tried again, alone (lifecycle.md, decision 4)."""

_put_off = (
    runs.update()
    .values(
        interruptions=func.coalesce(bindparam("count", type_=Integer), runs.c.interruptions),
        lease_owner=None,
        lease_expires_at=None,
        due_at=func.clock_timestamp() + func.make_interval(0, 0, 0, 0, 0, 0, bindparam("pause", type_=Float)),
    )
    .where(
        runs.c.realm_id == bindparam("run_realm_id", type_=ID),
        runs.c.id == bindparam("run_id", type_=ID),
        runs.c.fence == bindparam("held_fence", type_=BigInteger),
        runs.c.lease_owner == bindparam("owner", type_=WORD),
        runs.c.lease_expires_at > func.clock_timestamp(),
    )
)


def put_off(connection: Connection, lease: Lease, *, owner: str, pause: float, interruptions: int | None = None) -> int:
    """Hand one run back, due after `pause` seconds; with a new count of its interruptions, if one is given."""
    given = {"run_realm_id": lease[0], "run_id": lease[1], "held_fence": lease[2]}
    return int(connection.execute(_put_off, {**given, "owner": owner, "count": interruptions, "pause": pause}).rowcount)
