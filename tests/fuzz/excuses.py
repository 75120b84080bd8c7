"""Failures of checks that are none: a request is well formed, and still no.

JSON Schema has no words for such rules. Each excuse is as narrow as can be: a status of 422, and every error that the answer
names is about this member and has this code. What no excuse covers is a failure.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from schemathesis import Case, HookContext, Response
from schemathesis.core.failures import Failure
from schemathesis.openapi.checks import RejectedPositiveData

DEFINITIONS = ("stage_revision", "validate_definition")


@dataclass(frozen=True)
class Excuse:
    """Why a well-formed request is a 422 all the same."""

    reason: str
    path: str
    """A pattern of what each error is about."""
    codes: tuple[str, ...] = ("validation_failed",)
    operations: tuple[str, ...] = ()
    """None: all."""

    def covers(self, operation: str, errors: list[dict[str, str]]) -> bool:
        """Whether all that an answer says is this."""
        return (not self.operations or operation in self.operations) and all(
            error["code"] in self.codes and re.fullmatch(self.path, error["path"]) for error in errors
        )


EXCUSES: tuple[Excuse, ...] = (
    Excuse("a cursor is one that this list gave", "cursor"),
    Excuse("text holds no NUL", ".*", ("json",)),
    Excuse("an expiry lies ahead", "expires_at"),
    Excuse("whole numbers are written without a fraction", "revision", ("type",), ("roll_back_workflow",)),
    Excuse("a role is given within its boundary", "role_id", operations=("assign_role", "add_group_role")),
    Excuse(
        "a role of organizations holds permissions of organizations", r"permissions\[\d+\]", operations=("create_role",)
    ),
    Excuse("a URL is one that can be called", "url", ("invalid_destination",), ("create_subscription",)),
    Excuse("an idempotency key stands for one request", "Idempotency-Key", operations=("receive_event", "start_run")),
    Excuse(
        "definition.v1.json says in words: bounds of durations, no two steps of one id, no 1.0, and what is named exists",
        r"definition[.].*",
        ("duration_range", "unique", "reference", "type"),
        DEFINITIONS,
    ),
    Excuse(
        "what a definition names may be gone by now, or be beyond this version of the engine",
        r"definition[.].*",
        ("reference", "selector"),
        ("publish_revision", "roll_back_workflow", "enable_workflow"),
    ),
)


class Excused:
    """The hook that drops such failures, and counts them by their reasons."""

    def __init__(self, counted: Counter[str]) -> None:
        self.counted = counted

    def filter_failure(self, context: HookContext, failure: Failure, case: Case[Any], response: Response) -> bool:
        """False: it is none."""
        if not isinstance(failure, RejectedPositiveData) or response.status_code != 422:
            return True
        operation, errors = str(case.operation.definition.raw["operationId"]), _errors(response.json())
        for excuse in EXCUSES:
            if errors and excuse.covers(operation, errors):
                self.counted[excuse.reason] += 1
                return False
        return True


def _errors(body: Mapping[str, Any]) -> list[dict[str, str]]:
    errors: list[dict[str, str]] = body.get("errors", [])
    return errors
