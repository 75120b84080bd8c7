"""The step types. Adding one is adding its file and a line here."""

from __future__ import annotations

from typing import Any

from engine.lifecycle.steps import (
    add_to_group,
    approval,
    assign_role,
    call_webhook,
    end,
    notify,
    remove_from_group,
    remove_membership,
    remove_role,
    suspend_user,
    wait,
)
from engine.lifecycle.steps.step_type import StepType

STEP_TYPES: dict[str, StepType[Any]] = {
    "assign_role": assign_role.STEP,
    "remove_role": remove_role.STEP,
    "add_to_group": add_to_group.STEP,
    "remove_from_group": remove_from_group.STEP,
    "remove_membership": remove_membership.STEP,
    "suspend_user": suspend_user.STEP,
    "notify": notify.STEP,
    "approval": approval.STEP,
    "wait": wait.STEP,
    "call_webhook": call_webhook.STEP,
    "end": end.STEP,
}
