"""A state machine is a table: one row a legal move. What is not in it is refused.

Terminal states, the states that can be claimed and the diagram in the documentation are derived from the rows.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.core.errors import IllegalTransition


@dataclass(frozen=True)
class StateTable:
    """Rows of `(from, event, to)`; a second row for the same `(from, event)` does not load."""

    name: str
    rows: tuple[tuple[str, str, str], ...]

    def __post_init__(self) -> None:
        moves = {(source, event): target for source, event, target in self.rows}
        if len(moves) != len(self.rows):
            raise ValueError(f"the state table of {self.name} has two rows for one move")
        object.__setattr__(self, "_moves", moves)

    def move(self, state: str, event: str) -> str:
        """The state after `event`. Raises IllegalTransition when the table has no such row."""
        moves: dict[tuple[str, str], str] = self._moves  # type: ignore[attr-defined]
        target = moves.get((state, event))
        if target is None:
            raise IllegalTransition(f"a {self.name} that is {state} cannot take {event}")
        return target

    @property
    def states(self) -> tuple[str, ...]:
        """All states, in the order in which the rows name them first."""
        return tuple(dict.fromkeys(state for source, _, target in self.rows for state in (source, target)))

    @property
    def terminal(self) -> frozenset[str]:
        """States that no row leaves."""
        return frozenset(self.states) - {source for source, _, _ in self.rows}

    def diagram(self) -> str:
        """The table as a Mermaid state diagram."""
        lines = ["stateDiagram-v2", f"    [*] --> {self.rows[0][0]}"]
        lines += [f"    {source} --> {target}: {event}" for source, event, target in self.rows]
        lines += [f"    {state} --> [*]" for state in self.states if state in self.terminal]
        return "\n".join(lines)
