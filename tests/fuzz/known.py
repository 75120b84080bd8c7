"""What exists: ids by their kind, what belongs together, and what was seen in answers."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

ID = re.compile(r"[a-z]{3}_[0-7][0-9a-hjkmnp-tv-z]{25}")

ONCE = ("approve", "reject")
"""Operations that can be done once to a thing."""

Together = tuple[str, ...]


@dataclass
class Known:
    """Ids that exist, in the order in which they came to be known."""

    realm_id: str
    here: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    """By prefix: `usr`; roles by their boundary, too: `rol/realm`, `rol/organization`."""
    elsewhere: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    """Of another realm, by prefix."""
    together: dict[Together, list[Together]] = field(default_factory=lambda: defaultdict(list))
    """By the names of the parameters of a path: values that exist together."""
    cursors: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    """By operation."""
    untouchable: set[str] = field(default_factory=set)
    """Whoever calls and what lets them: nothing is done to these, so that they go on being able to."""
    seen: set[str] = field(default_factory=set)
    """Everything that stood in an answer, or is known from the beginning."""

    def add(self, *ids: str, kind: str = "") -> None:
        """Ids of this realm; `kind` says more than the prefix does."""
        for id_ in ids:
            for pool in {id_[:3], f"{id_[:3]}/{kind}" if kind else id_[:3]}:
                self.here[pool].append(id_)
            self.seen.add(id_)

    def add_elsewhere(self, *ids: str) -> None:
        """Ids of another realm."""
        for id_ in ids:
            self.elsewhere[id_[:3]].append(id_)

    def learn(self, operation: str, parameters: Mapping[str, Any], status: int, body: Any, text: str) -> None:
        """What an answer says: what was made and what is no more."""
        self.seen.update(ID.findall(text))
        if status in (201, 200) and isinstance(body, dict):
            if isinstance(cursor := body.get("next_cursor"), str):
                self.cursors[operation].append(cursor)
            if status == 201 and isinstance(made := body.get("id"), str):
                self.add(made, kind=str(body.get("boundary", "")))
            for names in self.together:
                found = tuple(str(body.get(name, parameters.get(name))) for name in names)
                if status == 201 and names != found and "None" not in found:
                    self.together[names].append(found)
        if parameters and (status == 204 or (status == 200 and operation in ONCE)):
            self._forget(parameters)

    def _forget(self, parameters: Mapping[str, Any]) -> None:
        """Deleted or done with. It is still tried now and then: links have it."""
        names = tuple(name for name in parameters if name != "realm_id")
        values = tuple(str(parameters[name]) for name in names)
        if len(names) == 1 and len(self.here[values[0][:3]]) > 1:
            for pool in self.here.values():
                if values[0] in pool:
                    pool.remove(values[0])
        elif len(names) > 1 and len(self.together[names]) > 1 and values in self.together[names]:
            self.together[names].remove(values)


def flat(*several: Iterable[str]) -> list[str]:
    """All of them."""
    return [each for one in several for each in one]
