"""What came of a campaign: cases and statuses by operation, and all that is wrong."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from schemathesis.engine import Status, events
from schemathesis.engine.recorder import ScenarioRecorder

OTHER_METHOD = frozenset({404, 405})
"""The answers to a method that the address does not have, or to an address that is none."""

SUCCESSES = range(200, 300)


@dataclass
class Tally:
    """Fed with the events of the engine."""

    statuses: dict[str, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    """By operation. What was sent with a method that it does not have is under no operation's name."""
    documented: dict[str, set[int]] = field(default_factory=dict)
    faults: dict[tuple[str, str], list[str]] = field(default_factory=lambda: defaultdict(list))
    """By operation and check: what was found, each with the way to send it again."""
    excused: Counter[str] = field(default_factory=Counter)
    """By reason: failures of checks that are none (excuses.py)."""
    phases: Counter[str] = field(default_factory=Counter)
    checks: Counter[str] = field(default_factory=Counter)
    """How often each was asked."""
    told: int = 0
    """How far progress was told."""

    @property
    def cases(self) -> int:
        """Sent and judged."""
        return sum(self.phases.values())

    def take(self, event: events.EngineEvent) -> None:
        """One event."""
        if isinstance(event, events.NonFatalError):
            self.faults[event.label, "engine"].append(f"{event.info.title}: {event.info.message}")
        if isinstance(event, events.FatalError):
            raise event.exception
        if isinstance(event, events.ScenarioFinished):
            self._scenario(event.phase.value, event.recorder)

    def _scenario(self, phase: str, recorder: ScenarioRecorder) -> None:
        for case_id, checks in recorder.checks.items():
            case, interaction = recorder.cases[case_id].value, recorder.interactions.get(case_id)
            if interaction is None or interaction.response is None:
                self.faults[case.operation.label, "network"].append("there was no answer")
                continue
            status, operation = interaction.response.status_code, str(case.operation.definition.raw["operationId"])
            self.phases[phase] += 1
            self.statuses[operation if case.method == case.operation.method.upper() else ""][status] += 1
            for check in checks:
                self.checks[check.name] += 1
                if check.status is Status.FAILURE and check.failure_info is not None:
                    said = f"{check.failure_info.failure.message}\n{check.failure_info.code_sample}"
                    self.faults[operation, check.name].append(f"{said}\n{status} {interaction.response.text[:600]}")

    def wrong(self) -> Iterator[str]:
        """All that is wrong, a paragraph each."""
        for operation, statuses in sorted(self.statuses.items()):
            known = self.documented.get(operation, OTHER_METHOD)
            yield from (f"{operation}: {status} is not documented" for status in statuses if status not in known)
            yield from (f"{operation}: {status} says that something broke" for status in statuses if status >= 500)
        for (operation, check), found in sorted(self.faults.items()):
            yield f"{operation}: {check}, {len(found)} times. The first:\n{found[0]}\n"

    def never_done(self) -> list[str]:
        """Operations without a single success: whatever was sent died before."""
        return [name for name in self.documented if not any(status in SUCCESSES for status in self.statuses[name])]

    def lines(self) -> Iterator[str]:
        """The table."""
        never = self.never_done()
        yield f"{'operation':28}{'cases':>6}  statuses"
        for name in sorted(self.documented):
            statuses = self.statuses[name]
            note = "" if name not in never else "   NEVER DONE"
            yield f"{name:28}{statuses.total():>6}  {_told(statuses)}{note}"
        yield f"{'(another method)':28}{self.statuses[''].total():>6}  {_told(self.statuses[''])}"
        yield f"{'all':28}{self.cases:>6}  {_told(sum(self.statuses.values(), Counter()))}"
        yield "phases: " + ", ".join(f"{name} {count}" for name, count in self.phases.items())
        yield "checks: " + ", ".join(f"{name} {count}" for name, count in sorted(self.checks.items()))
        for reason, count in sorted(self.excused.items()):
            yield f"excused {count:>5}  {reason}"
        for name, documented in sorted(self.documented.items()):
            if missing := sorted(documented - set(self.statuses[name]) - ANYWHERE - set(SUCCESSES)):
                yield f"{name}: documented, and nothing led to it: {missing}"


def _told(statuses: Counter[int]) -> str:
    return "  ".join(f"{status}:{count}" for status, count in sorted(statuses.items()))


ANYWHERE = frozenset({400, 403, 408, 413, 415, 429, 431, 500, 503})
"""What depends on how a request is sent, when, or by whom: other tests lead there."""
