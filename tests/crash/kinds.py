"""What a worker is killed in the middle of: a kind of step, and the places at which a worker doing it can be hit.

Each kind names every place that it reaches, with the number of the visit; a place that is never reached fails its test.
`#2` of a place that a call's answer passes through is the answer's transaction; of a compensation, what comes after the first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tests.crash.stage import Stage

Json = dict[str, Any]
Point = tuple[str, int]
"""A failpoint, and the how manyth time a worker gets there."""

LOADED, DECIDED, EFFECTS = "round.after_load", "round.after_decide", "round.after_effects"
COMMITTING, COMMITTED = "round.before_commit", "round.after_commit"
CLAIMED: Point = ("claim.after_commit", 1)

OPEN = (LOADED, DECIDED, EFFECTS, COMMITTING)
"""Places inside the transaction of a round: nothing of it is there after a kill."""

CALL = ("call.before_send", "call.after_send")
ANSWER = ("answer.before_commit", "answer.after_commit")


def once(*names: str) -> tuple[Point, ...]:
    """The first visit of each."""
    return tuple((name, 1) for name in names)


def visits(names: Sequence[str], *numbers: int) -> tuple[Point, ...]:
    """These visits of each."""
    return tuple((name, number) for name in names for number in numbers)


ROUND = (CLAIMED, *once(*OPEN, COMMITTED))
"""All places that a step of one transaction passes."""

UNDOING = visits((*OPEN, COMMITTED), 1, 2)
"""An undo, and the end of the run after it."""


@dataclass(frozen=True)
class Kind:
    """A kind of step: how to have workers do it, where to kill them, and how its runs end when all is well."""

    name: str
    step: str | None
    """The step type the failpoint waits for."""
    points: tuple[Point, ...]
    steps: Callable[[Stage], list[Json]]
    end: str = "succeeded"
    subjects: Callable[[Stage], list[str]] = Stage.members
    """New users for one kill, prepared for the step."""
    parks: bool = False
    """Whether a clean worker brings the runs to a halt first; the kill comes when they go on."""
    trigger: str = "manual"
    mails: bool = False

    def failpoint(self, point: Point, action: str = "kill") -> str:
        """What TENURE_FAILPOINT is set to."""
        name, number = point
        at_a_step = self.step is not None and name.partition(".")[0] in ("round", "call", "answer")
        step = "call_webhook" if name.startswith(("call.", "answer.")) else self.step
        return f"{name}{f'@{step}' if at_a_step else ''}={action}#{number}"

    def __str__(self) -> str:
        return self.name


def _of(kind: str, **members: Any) -> Callable[[Stage], list[Json]]:
    """That step, then `end`."""
    return lambda stage: [{"id": "it", "type": kind, **_filled(members, stage)}, END]


def _undone(kind: str, **members: Any) -> Callable[[Stage], list[Json]]:
    """That step, then one that fails for good."""
    return lambda stage: [{"id": "it", "type": kind, **_filled(members, stage)}, stage.impossible, END]


def _filled(members: Json, stage: Stage) -> Json:
    return {name: value(stage) if callable(value) else value for name, value in members.items()}


def _all_undone(stage: Stage) -> list[Json]:
    """Three steps that can be taken back, then one that fails for good."""
    return [
        {"id": "grant", "type": "assign_role", **_filled(ROLE, stage)},
        {"id": "team", "type": "add_to_group", **_filled(GROUP, stage)},
        {"id": "sync", "type": "call_webhook", "compensate": True, **_filled(ENDPOINT, stage)},
        {"id": "tell", "type": "notify", "notice": "welcome"},
        stage.impossible,
        END,
    ]


END: Json = {"id": "done", "type": "end"}
ROLE: Json = {"role_id": lambda stage: stage.role, "scope": "organization"}
GROUP: Json = {"group_id": lambda stage: stage.group}
ENDPOINT: Json = {"subscription_id": lambda stage: stage.endpoint, "retry": {"max_attempts": 10, "backoff": "1s"}}
APPROVERS: Json = {"approvers": lambda stage: [stage.approver], "expires_in": "1h"}

KINDS: tuple[Kind, ...] = (
    Kind("assign_role", "assign_role", ROUND, _of("assign_role", **ROLE)),
    Kind("remove_role", "remove_role", ROUND, _of("remove_role", **ROLE), subjects=Stage.holders),
    Kind("add_to_group", "add_to_group", ROUND, _of("add_to_group", **GROUP)),
    Kind("remove_from_group", "remove_from_group", ROUND, _of("remove_from_group", **GROUP), subjects=Stage.teammates),
    Kind("remove_membership", "remove_membership", ROUND, _of("remove_membership"), subjects=Stage.holders),
    Kind("suspend_user", "suspend_user", ROUND, _of("suspend_user")),
    Kind("notify", "notify", ROUND, _of("notify", notice="welcome")),
    Kind("end", "end", ROUND, lambda _: [END]),
    Kind("wait", "wait", ROUND, _of("wait", **{"for": "1m"})),
    Kind("wait that is over", "wait", ROUND, _of("wait", **{"for": "1m"}), parks=True),
    Kind("approval", "approval", ROUND, _of("approval", **APPROVERS)),
    Kind("approval that is decided", "approval", ROUND, _of("approval", **APPROVERS), parks=True),
    Kind(
        "call_webhook",
        "call_webhook",
        (CLAIMED, *once(LOADED), *visits((DECIDED, EFFECTS), 1, 2), *once(COMMITTING, COMMITTED, *CALL, *ANSWER)),
        _of("call_webhook", **ENDPOINT),
    ),
    Kind("assign_role undone", "compensate", UNDOING, _undone("assign_role", **ROLE), "compensated"),
    Kind("add_to_group undone", "compensate", UNDOING, _undone("add_to_group", **GROUP), "compensated"),
    Kind(
        "call_webhook undone",
        "compensate",
        (
            *visits((DECIDED, EFFECTS), 1, 2, 3),
            *visits((LOADED, COMMITTING, COMMITTED), 1, 2),
            *visits((*CALL, *ANSWER), 2),
        ),
        _undone("call_webhook", compensate=True, **ENDPOINT),
        "compensated",
        subjects=Stage.member,
    ),
    Kind(
        "three steps undone",
        "compensate",
        (*visits((EFFECTS,), 1, 2, 3, 4, 5), *visits((COMMITTED,), 1, 2, 3, 4)),
        _all_undone,
        "compensated",
        subjects=Stage.member,
    ),
    Kind(
        "dispatch",
        None,
        once("dispatch.after_match", "dispatch.before_commit", "dispatch.after_commit"),
        _of("add_to_group", **GROUP),
        subjects=Stage.newcomers,
        trigger="event",
    ),
    Kind(
        "schedule",
        None,
        once("schedule.before_commit", "schedule.after_commit"),
        _of("notify", notice="access_expiring"),
        subjects=Stage.holders,
        trigger="schedule",
    ),
    Kind("mail", None, once("mail.after_claim", "mail.after_send"), _of("notify", notice="welcome"), mails=True),
)
