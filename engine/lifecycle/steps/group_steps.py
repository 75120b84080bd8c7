"""What the two steps about a group share: which group it is, and what changing its membership takes."""

from __future__ import annotations

from typing import Protocol

from engine.core.errors import Refused
from engine.directory.authority import Authority, require_group_ceiling
from engine.directory.facts import Facts, GroupFact, Key
from engine.directory.groups import existing_group


class GroupStep(Protocol):
    """A step that names a group."""

    @property
    def group_id(self) -> str: ...


def group_in(facts: Facts, group: Key, organization_id: str) -> GroupFact:
    """The group, in the organization the step acts in. Raises Refused(`group_missing`)."""
    fact = existing_group(facts, group)
    if fact.organization_id != organization_id:
        raise Refused("group_missing", f"the group {fact.id} is not one of {organization_id}")
    return fact


def group_authority(step: GroupStep, realm_id: str, organization_id: str | None, facts: Facts, held: Authority) -> None:
    """`org.groups.write`, and the ceiling of every role that the group and its ancestors grant."""
    group = (realm_id, step.group_id)
    existing_group(facts, group)
    require_group_ceiling(held, facts, group, organization_id)
