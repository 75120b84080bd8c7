"""A worker is killed (SIGKILL) at every place that it passes, in the middle of every type of step; another one finishes.

Nothing is done twice, nothing is lost, and the attempts are as the source says: a step of one transaction has one attempt,
whenever its worker died; a call that was interrupted is recorded so, and tried again under the same Idempotency-Key.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from engine.core.failpoints import NAMES
from engine.lifecycle.steps.registry import STEP_TYPES
from tests.crash import closing, judge
from tests.crash.ahead import asked_for, played_ahead
from tests.crash.kinds import CALL, COMMITTED, DECIDED, EFFECTS, END, KINDS, Kind, Point, once, visits
from tests.crash.story import Killed, Story, Theatre
from tests.crash.workers import ENVIRONMENT, ROOT
from tests.database import plain

SIDE_BY_SIDE = 4
"""Stories that are played at once: most of a story is waiting for a lease to end."""

CASES = [pytest.param(kind, point, id=f"{kind}-{point[0]}#{point[1]}") for kind in KINDS for point in kind.points]
STORIES = [pytest.param(kind, id=str(kind)) for kind in KINDS]

pytestmark = pytest.mark.timeout(300)

OUT = {
    "call_webhook": {
        (COMMITTED, 1),
        *visits((DECIDED, EFFECTS), 2),
        *once(*CALL, "answer.before_commit"),
    },
    "call_webhook undone": {(COMMITTED, 1), *visits((DECIDED, EFFECTS, *CALL, "answer.before_commit"), 2)},
}
"""Where a worker dies with a call out: recorded as under way, its end not recorded."""

Teller = Callable[[Kind], Story]


@pytest.fixture(scope="module")
def story_of(request: pytest.FixtureRequest, theatre: Theatre) -> Iterator[Teller]:
    """The story of each kind, with the kills that are asked for. The scenes of another file are played meanwhile, unless that
    file is another process's."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        request.getfixturevalue("scenes")
    wanted: dict[Kind, list[Point]] = defaultdict(list)
    for kind, point in asked_for(request, "kind", "point"):
        wanted[kind].append(point)
    with played_ahead(lambda kind: theatre.play(kind, wanted[kind]), wanted, side_by_side=SIDE_BY_SIDE) as ahead:
        yield ahead
        for kind, story in ahead.good():
            closing.add_story(f"killed: {kind}", story)


@pytest.mark.parametrize(("kind", "point"), CASES)
def test_a_worker_killed_there_is_survived(kind: Kind, point: Point, story_of: Teller) -> None:
    (killed,) = [each for each in story_of(kind).kills if each.point == point]
    assert killed.status == -signal.SIGKILL, f"no worker got to {point} with {kind} in hand: {killed.said}"
    assert killed.states == [kind.end] * len(killed.subjects)
    require_nothing_half_done(kind, killed)
    require_attempts_as_the_source_says(story_of(kind), killed)


@pytest.mark.parametrize("kind", [kind for kind in STORIES if "call_webhook" in kind.id])
def test_a_call_is_interrupted_by_a_kill_between_its_two_records(kind: Kind, story_of: Teller) -> None:
    story = story_of(kind)
    for killed in story.kills:
        if killed.point in OUT[kind.name]:
            assert any(subject in killed.subjects for subject, *_ in story.interrupted), killed.point


@pytest.mark.parametrize("kind", STORIES)
def test_all_that_must_hold_held_through_the_kills(kind: Kind, story_of: Teller) -> None:
    story = story_of(kind)
    assert not story.violations
    assert not story.calls_judgement


def test_a_message_is_sent_again_only_if_its_worker_died_between_relay_and_record(story_of: Teller) -> None:
    (kind,) = [kind for kind in KINDS if kind.mails]
    story = story_of(kind)
    times = {killed.point[0]: sorted(len(story.mail[s]) for s in killed.subjects) for killed in story.kills}
    assert times == {"mail.after_claim": [1, 1], "mail.after_send": [1, 2]}
    assert all(len(set(sent)) == 1 for sent in story.mail.values() if sent), "the same Message-Id each time"


def test_a_worker_that_was_started_like_any_other_is_killed_by_its_environment(theatre: Theatre) -> None:
    """The same as a process of its own from the start: nothing of this rests on how the workers above were forked."""
    with theatre.stage() as stage:
        stage.begin(stage.publish([END]), stage.members())
        command = [sys.executable, "-m", "tests.crash.worker_process", "--database-url", plain(stage.database.app_url)]
        environment = {**os.environ, **ENVIRONMENT, "TENURE_FAILPOINT": "round.before_commit@end=kill"}
        killed = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, check=False, timeout=60)
        assert killed.returncode == -signal.SIGKILL
        worker = theatre.launcher.start(stage.database)
        worker.wait(lambda: stage.unfinished() == 0, "another finishes")
        worker.leave()
        judge.require_sound(stage.database)


def test_every_place_and_every_type_of_step_has_its_kill() -> None:
    assert {name for kind in KINDS for name, _ in kind.points} == set(NAMES)
    assert {kind.step for kind in KINDS} == {*STEP_TYPES, "compensate", None}


def require_nothing_half_done(kind: Kind, killed: Killed) -> None:
    """What the dead worker left of a step of one transaction is all of it or nothing."""
    if kind.step is None or kind.step in ("call_webhook", "compensate"):
        return
    name, _ = killed.point
    began = [row.state for row in killed.at_death if row.step_type == kind.step]
    if kind.parks:
        assert began == ["succeeded" if name == COMMITTED else "started"] * len(killed.subjects)
    elif name == COMMITTED:
        assert began == ["started" if kind.step in ("wait", "approval") else "succeeded"] * len(killed.subjects)
    else:
        assert began == []


def require_attempts_as_the_source_says(story: Story, killed: Killed) -> None:
    """One attempt a step, and one more for each call that was out when its worker died."""
    interruptions = Counter((subject, step, action) for subject, step, action, _ in story.interrupted)
    steps = defaultdict(list)
    for row in killed.at_last:
        steps[row.subject_id, row.step_id].append(row)
    for step, attempts in steps.items():
        ends = [(row.state, row.error_category) for row in attempts]
        if step[1] == "fail":
            assert [state for state, _ in ends] == ["failed"], "what fails for good is tried once"
        else:
            assert ends == [("failed", "interrupted")] * interruptions[*step, "execute"] + [("succeeded", None)]
        if attempts[-1].compensation_state == "done":
            assert attempts[-1].compensation_attempts == interruptions[*step, "compensate"] + 1
        assert len({row.idempotency_key for row in attempts}) == 1


@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_workers_that_take_over_are_killed_there_too(theatre: Theatre) -> None:
    """The long form: at each place the worker that takes over is killed as well, and the one after it; waits are waited for."""
    play = partial(theatre.play, again=2, patient=True)
    with played_ahead(play, KINDS, side_by_side=2 * SIDE_BY_SIDE) as ahead:
        for kind in KINDS:
            story = ahead(kind)
            closing.add_story(f"killed thrice: {kind}", story)
            assert not story.violations, kind
            assert not story.calls_judgement, kind
            assert {state for killed in story.kills for state in killed.states} == {kind.end}, kind
