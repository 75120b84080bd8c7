"""The ways to fail, and the closed list of categories that records, problems and metrics may carry.

The categories are those of the source document ("Error categories in attempts and runs"); `http_<status>` stands for the
whole family of answers of an endpoint.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

CATEGORIES: frozenset[str] = frozenset(
    {
        # the world said no
        "subject_missing",
        "group_missing",
        "not_a_member",
        "self_action",
        "no_recipients",
        "no_eligible_approver",
        "approval_rejected",
        "approval_expired",
        "approval_missing",
        "organization_required",
        "publisher_lacks_authority",
        "cancelled",
        "definition_unavailable",
        # a refused operation's own code
        "forbidden",
        "grant_ceiling_exceeded",
        "conflict",
        "not_found",
        "validation_failed",
        # the engine
        "retries_exhausted",
        "interrupted",
        "error",
        # endpoint calls
        "gone",
        "timeout",
        "network_error",
        "egress_denied",
        "subscription_missing",
        "subscription_paused",
        "subscription_disabled",
        "secret_unavailable",
        "invalid_destination",
    }
)

_HTTP_STATUS = re.compile(r"http_[1-5][0-9]{2}")


def is_category(value: str) -> bool:
    """Whether `value` belongs to the closed list."""
    return value in CATEGORIES or _HTTP_STATUS.fullmatch(value) is not None


class TenureError(Exception):
    """Any failure the product raises on purpose."""


class _Categorized(TenureError):
    def __init__(self, category: str, message: str, path: str | None = None) -> None:
        if not is_category(category):
            raise ValueError(f"{category} is not a category")
        super().__init__(message)
        self.category = category
        self.message = message
        self.path = path


class Refused(_Categorized):
    """Permanent: the world said no, and asking again will not change it. `path` names the member at fault, if one is."""


class Unavailable(_Categorized):
    """Transient: the world did not answer. Tried again under the retry policy in force."""


class IllegalTransition(TenureError):
    """A move that the state table does not have: a bug, and loud."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing wrong with a definition. `path` is like `definition.steps[2].role_id`."""

    path: str
    rule: str
    message: str


class DefinitionInvalid(TenureError):
    """A definition that breaks a rule. Carries every fault found; answered as a 422."""

    def __init__(self, faults: list[Fault]) -> None:
        super().__init__("; ".join(f"{fault.path}: {fault.message}" for fault in faults))
        self.faults = faults
