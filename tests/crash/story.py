"""The story of a kind: at each of its places a worker is killed, then another finishes everything, then the judge looks.

All kills of a kind happen in one database, one after another, each with runs of its own in hand. What a dead worker held is
free again when its lease ends: the leases are long, so that no worker is killed with another's runs, and then their time passes
at once (in the long form they are short, and waited for). Kinds have databases of their own and may be played side by side.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from db.embedded import ensure_server
from db.postgres.folder import read_record
from db.postgres.postmaster import live_postmaster
from tests.crash import judge
from tests.crash.kinds import Kind, Point
from tests.crash.receiver import Call, Mailbox, Receiver
from tests.crash.stage import Stage
from tests.crash.workers import Launcher, WorkerProcess, until
from tests.database import SharedServer

EXTRA = {"max_connections": "300", "scram_iterations": "1"}
"""What the server is started with beyond our own settings, which are those of production: fsync and full_page_writes are on."""

KILLED_WITHIN = 30.0
"""Seconds in which a worker must have got to the place where it is killed."""

ATTEMPTS = (
    "SELECT r.subject_id, a.step_id, a.step_type, a.attempt, a.state, a.error_category, a.idempotency_key, a.max_attempts,"
    " a.compensation_state, a.compensation_attempts, a.compensation_started_at IS NOT NULL AS is_out"
    " FROM workflow_step_attempts a JOIN workflow_runs r ON (r.realm_id, r.id) = (a.realm_id, a.run_id)"
    " ORDER BY r.subject_id, a.step_index, a.attempt"
)


@dataclass
class Killed:
    """One kill, and what became of the runs that were in hand."""

    point: Point
    subjects: list[str]
    status: int | None = None
    """How the worker ended: -9 if it got to the place."""
    said: str = ""
    at_death: Sequence[Any] = ()
    """The attempts of these runs when it had just died."""
    at_last: Sequence[Any] = ()
    """And when all had ended."""
    states: list[str] = field(default_factory=list)


@dataclass
class Story:
    """All kills of a kind."""

    kind: Kind
    kills: list[Killed] = field(default_factory=list)
    interrupted: set[tuple[str, str, str, int]] = field(default_factory=set)
    """What was out when a worker died: subject, step, `execute` or `compensate`, attempt."""
    violations: dict[str, Any] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    calls_judgement: str = ""
    mail: dict[str, list[str]] = field(default_factory=dict)
    """Message-Ids by subject."""
    deaths: int = 0
    runs: int = 0
    effects: int = 0
    stall: float = 0.0
    seconds: float = 0.0


@dataclass(frozen=True)
class Theatre:
    """What every story needs."""

    folder: Path
    """The server's data folder."""
    server: SharedServer
    launcher: Launcher
    receiver: Receiver
    relay: tuple[Mailbox, int]

    @property
    def port(self) -> int:
        """Where the server listens on the loopback."""
        assert self.server.owner_url.port is not None
        return self.server.owner_url.port

    def restart_server(self) -> None:
        """Stop PostgreSQL at once, and start it again."""
        stop_at_once(self.folder)
        ensure_server(self.folder, extra=EXTRA)

    @contextmanager
    def stage(self, path: str = "/ok") -> Iterator[Stage]:
        """A stage in a database of its own; its endpoint answers as `path` says."""
        with self.server.fresh() as database:
            yield Stage.built(database, self.receiver, path)

    def play(self, kind: Kind, points: Sequence[Point] = (), *, again: int = 0, patient: bool = False) -> Story:
        """Kill a worker at each of these places (all of the kind's, if none are named), and have another finish.

        `again`: how often the workers that take over are killed at each of the places too, before one is let live.
        `patient`: leases and the waits of compensations are waited for, not cut short.
        """
        began, story = time.monotonic(), Story(kind)
        with self.stage() as stage:
            workflow_id = stage.publish(kind.steps(stage), kind.trigger)
            for point in points or kind.points:
                story.kills.append(Killed(point, kind.subjects(stage)))
            if kind.parks:
                self._park(stage, kind, workflow_id, story)
            for killed in story.kills:
                self._kill(stage, kind, workflow_id, killed, story, lease="PT4S" if patient else "PT10M")
            story.deaths = len(story.kills)
            for _ in range(again):
                story.deaths += self._kill_again(stage, kind, [killed.point for killed in story.kills])
            self._finish(stage, kind, patient=patient)
            self._judge(stage, story, patient=patient)
        story.seconds = time.monotonic() - began
        return story

    def _start(self, stage: Stage, kind: Kind, failpoint: str = "", **environment: str) -> WorkerProcess:
        mail = {"TENURE_SMTP_HOST": "127.0.0.1", "TENURE_SMTP_PORT": str(self.relay[1]), "TENURE_SMTP_TIMEOUT": "PT1S"}
        environment |= mail if kind.mails else {}
        return self.launcher.start(stage.database, failpoint, schedules=kind.trigger == "schedule", **environment)

    def _park(self, stage: Stage, kind: Kind, workflow_id: str, story: Story) -> None:
        for killed in story.kills:
            stage.begin(workflow_id, killed.subjects, kind.trigger)
        worker = self._start(stage, kind)
        halted = (
            "SELECT FROM workflow_runs WHERE state NOT IN ('waiting', 'awaiting_approval') OR lease_owner IS NOT NULL"
        )
        until(lambda: not stage.rows(halted), "all runs are parked")
        worker.leave()

    def _kill(self, stage: Stage, kind: Kind, workflow_id: str, killed: Killed, story: Story, *, lease: str) -> None:
        if kind.parks:
            stage.decide_approvals(killed.subjects)
            stage.let_waits_end(killed.subjects)
        else:
            stage.begin(workflow_id, killed.subjects, kind.trigger)
        worker = self._start(stage, kind, kind.failpoint(killed.point), TENURE_LEASE_DURATION=lease)
        killed.status = _death(worker)
        killed.said = worker.said
        killed.at_death = self._look(stage, story, killed)

    def _look(self, stage: Stage, story: Story, killed: Killed) -> list[Any]:
        """The attempts of these runs now. Whatever is out, of all runs, was just interrupted."""
        attempts = stage.rows(ATTEMPTS)
        for row in attempts:
            if row.step_type == "call_webhook" and row.state == "started":
                story.interrupted.add((row.subject_id, row.step_id, "execute", row.attempt))
            if row.is_out and row.compensation_state == "pending":
                story.interrupted.add((row.subject_id, row.step_id, "compensate", row.compensation_attempts))
        return [row for row in attempts if row.subject_id in killed.subjects]

    def _kill_again(self, stage: Stage, kind: Kind, points: Sequence[Point]) -> int:
        """Each of the places once more, as long as there is something left to do. Returns how many were reached."""
        deaths = 0
        for name, _ in points:
            worker = self._start(stage, kind, kind.failpoint((name, 1)))
            until(
                lambda w=worker: w.status is not None or self._done(stage, kind),
                "a worker dies or finishes",
                every=0.05,
            )
            worker.send(signal.SIGTERM)
            deaths += worker.wait_ended() == -signal.SIGKILL
        return deaths

    def _finish(self, stage: Stage, kind: Kind, *, patient: bool) -> None:
        stage.let_mail_come()
        if not patient:
            stage.let_leases_end()
        worker = self._start(stage, kind)
        what = "all runs have ended"
        until(lambda: self._done(stage, kind, patient=patient), what, every=0.15, within=60 + 300 * patient)
        worker.leave()

    def _done(self, stage: Stage, kind: Kind, *, patient: bool = False) -> bool:
        """Help on whoever waits; whether nothing is left to do: no run, event, slot or message."""
        stage.decide_approvals()
        stage.let_waits_end()
        if not patient:
            stage.let_retries_come()
        return not stage.rows(
            "SELECT FROM workflow_runs WHERE finished_at IS NULL"
            " UNION ALL SELECT FROM outbox_events WHERE dispatched_at IS NULL AND set_aside_at IS NULL"
            " UNION ALL SELECT FROM schedule_triggers WHERE next_slot_at < now() OR slot_at IS NOT NULL"
            " UNION ALL SELECT FROM messages WHERE state = 'queued' AND :mails LIMIT 1",
            mails=kind.mails,
        )

    def _judge(self, stage: Stage, story: Story, *, patient: bool) -> None:
        for killed in story.kills:
            killed.at_last = self._look(stage, story, killed)
            states = stage.rows("SELECT state FROM workflow_runs WHERE subject_id = ANY(:s)", s=killed.subjects)
            killed.states = [row.state for row in states]
        story.violations = judge.violations(stage.database)
        story.calls = stage.calls(self.receiver)
        try:
            judge.require_calls_sound(stage.database, story.calls)
        except AssertionError as error:
            story.calls_judgement = str(error)
        for row in stage.rows("SELECT id, email FROM users"):
            story.mail[row.id] = self.relay[0].of(row.email)
        story.runs = len(stage.rows("SELECT FROM workflow_runs"))
        story.effects = judge.effects(stage.database)
        story.stall = judge.longest_stall(stage.database) if patient else 0.0


def stop_at_once(folder: Path) -> None:
    """Stop the embedded PostgreSQL without a word to anybody (immediate mode): the next start recovers it."""
    record = read_record(folder)
    assert record is not None
    cluster = folder / record.root / "cluster"
    pid = live_postmaster(cluster)
    assert pid is not None
    os.kill(pid, signal.SIGQUIT)
    until(lambda: live_postmaster(cluster) != pid, "the server is gone")


def _death(worker: WorkerProcess) -> int | None:
    """How it ended. None if it did not get to the place, and had to be killed by us."""
    try:
        return worker.wait_ended(within=KILLED_WITHIN)
    except AssertionError:
        worker.send(signal.SIGKILL)
        worker.wait_ended()
        return None
