"""The selectors that can be fired, by name. Adding one is adding its file and a line here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import Connection

from engine.core.errors import DefinitionInvalid, Fault
from engine.lifecycle.definition import Definition
from engine.lifecycle.selectors import role_holders
from engine.lifecycle.trigger_members import RoleHolders, ScheduleMembers, Selector

Page = Callable[[Connection, str, Any, str, int], list[str]]

SELECTORS: dict[str, tuple[type[Selector], Page]] = {
    "role_holders": (RoleHolders, role_holders.page),
}


def require_selectable(definition: Definition) -> None:
    """Raise DefinitionInvalid for a schedule whose population this version cannot read: better refused than never fired."""
    faults = [
        Fault(f"definition.triggers[{index}].select.type", "selector", "cannot be fired by this version of the engine")
        for index, trigger in enumerate(definition.triggers)
        if isinstance(trigger, ScheduleMembers) and trigger.select.type not in SELECTORS
    ]
    if faults:
        raise DefinitionInvalid(faults)
