"""The closing table of a crash session: what was done to the workers, and what came of it. Printed by conftest.py."""

from __future__ import annotations

import time
from dataclasses import dataclass

from tests.crash import judge
from tests.crash.stage import Stage
from tests.crash.story import Story


@dataclass(frozen=True)
class Line:
    """What one test did."""

    what: str
    faults: int
    runs: int
    effects: int
    calls: int
    stall: float
    """Longest time a run lay still in somebody's hands, in seconds; 0 where the time of leases was made to pass."""
    seconds: float
    remark: str = ""


LINES: list[Line] = []


def add(line: Line) -> None:
    """Take a line into the table."""
    LINES.append(line)


def add_story(what: str, story: Story) -> None:
    """The line of a story."""
    add(Line(what, story.deaths, story.runs, story.effects, len(story.calls), story.stall, story.seconds))


def add_test(stage: Stage, what: str, *, faults: int, began: float, calls: int = 0, remark: str = "") -> None:
    """The line of a test that had a database of its own; `began` by the monotonic clock."""
    runs = len(stage.rows("SELECT FROM workflow_runs"))
    effects, stall = judge.effects(stage.database), judge.longest_stall(stage.database)
    add(Line(what, faults, runs, effects, calls, stall, time.monotonic() - began, remark))


def table() -> list[str]:
    """The table as lines of text, with its sum."""
    rows = [
        (
            x.what,
            x.faults,
            x.runs,
            x.effects,
            x.calls,
            f"{x.stall:.1f}" if x.stall else "-",
            f"{x.seconds:.1f}",
            x.remark,
        )
        for x in LINES
    ]
    sums = [sum(getattr(x, name) for x in LINES) for name in ("faults", "runs", "effects", "calls")]
    longest = max((x.stall for x in LINES), default=0.0)
    rows.append(("together", *sums, f"{longest:.1f}", "", ""))
    head = ("", "faults", "runs", "effects", "calls", "stall s", "took s", "")
    return [f"{a:<56}{b:>8}{c:>8}{d:>9}{e:>7}{f:>9}{g:>8}  {h}".rstrip() for a, b, c, d, e, f, g, h in (head, *rows)]


def pace(stage: Stage, workflow_id: str = "%") -> str:
    """Steps a second of a workflow, from the first attempt to the end of the last run, by the database's clock."""
    (row,) = stage.rows(
        "SELECT count(*), extract(epoch FROM max(r.finished_at) - min(a.started_at))::float"
        " FROM workflow_step_attempts a JOIN workflow_runs r ON (r.realm_id, r.id) = (a.realm_id, a.run_id)"
        " WHERE r.workflow_id LIKE :id",
        id=workflow_id,
    )
    return f"{row[0]} steps in {row[1]:.2f} s: {row[0] / row[1]:.0f} steps/s"
