"""What operators see of a shift in Prefect: a task run a busy pass, an event an outcome, one table. Ids and counts only.

Called from the flow's main thread, never from the loop's: a slow or dead Prefect server must not delay a pass. Budgets keep
Prefect's history bounded (a task run costs the server 74 ms and 17 kB, an event 3.6 ms and 2.4 kB).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from prefect import task
from prefect.artifacts import create_table_artifact
from prefect.cache_policies import NO_CACHE
from prefect.events import emit_event

from tasks.passes import Occurrence, PassRecord

log = logging.getLogger("engine.shift")

BUSY_PASSES_SHOWN = 20
EVENTS_EMITTED = 1000


@task(
    name="busy-pass",
    task_run_name="pass {number}: {summary}",
    retries=0,
    persist_result=False,
    cache_policy=NO_CACHE,
)
def show_pass(number: int, summary: str) -> None:
    """A bar in the run's timeline for a pass that did something. The work itself is done by then."""
    log.info("Pass %d: %s", number, summary)


class Display:
    """What one shift has shown so far."""

    def __init__(self, key: str) -> None:
        self._key = key
        self._passes_left = BUSY_PASSES_SHOWN
        self._events_left = EVENTS_EMITTED
        self.unshown_events = 0

    def show(self, passes: Iterable[tuple[int, PassRecord]]) -> None:
        """Show busy passes, by number."""
        for number, record in passes:
            if self._passes_left > 0:
                self._passes_left -= 1
                show_pass(number, str(record))
            for occurrence in record.occurrences:
                self._emit(occurrence)

    def table(self, rows: Mapping[str, int | str], description: str) -> None:
        """The shift's one table."""
        create_table_artifact(
            key=self._key,
            table=[{"what": what, "count": count} for what, count in rows.items()],
            description=description,
        )

    def _emit(self, occurrence: Occurrence) -> None:
        if self._events_left <= 0:
            self.unshown_events += 1
            return
        self._events_left -= 1
        emit_event(
            event=occurrence.event,
            resource={"prefect.resource.id": occurrence.resource, "prefect.resource.name": occurrence.resource},
            related=[
                {"prefect.resource.id": resource, "prefect.resource.role": role, "prefect.resource.name": resource}
                for role, resource in occurrence.related
            ],
            payload=dict(occurrence.payload),
        )
