"""Problems (RFC 9457): every answer that is not a success has a stable `code`.

`detail` is one sentence of ours and `errors` names members by path. Nothing here repeats what was sent, an SQL text, or what
an unexpected error says of itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import rfc9457

MAX_ERRORS = 100
"""Told at once."""

TYPE = "urn:tenure:problem:{type}"
MEDIA_TYPE = "application/problem+json"


@dataclass(frozen=True, slots=True)
class Kind:
    """A code's status and title."""

    status: int
    title: str


KINDS: Mapping[str, Kind] = {
    "bad_request": Kind(400, "The request cannot be read"),
    "unauthenticated": Kind(401, "Who calls is not known"),
    "mfa_required": Kind(403, "A second factor is needed"),
    "forbidden": Kind(403, "This is not allowed"),
    "grant_ceiling_exceeded": Kind(403, "Nobody gives more than they hold"),
    "approval_missing": Kind(403, "An approval is needed"),
    "self_action": Kind(403, "Nobody does this to themselves"),
    "not_found": Kind(404, "This does not exist"),
    "method_not_allowed": Kind(405, "This method is not offered here"),
    "request_timeout": Kind(408, "The request took too long to arrive"),
    "conflict": Kind(409, "The present state does not allow this"),
    "not_a_member": Kind(409, "The user is not a member of the organization"),
    "content_too_large": Kind(413, "The body is too large"),
    "unsupported_media_type": Kind(415, "The body must be JSON"),
    "validation_failed": Kind(422, "Something in the request is not valid"),
    "invalid_destination": Kind(422, "The destination cannot be called"),
    "too_many_requests": Kind(429, "Too many requests have failed"),
    "head_too_large": Kind(431, "The head of the request is too large"),
    "internal_error": Kind(500, "Something went wrong on our side"),
    "contention": Kind(503, "Somebody else is changing the same thing"),
    "overloaded": Kind(503, "Too many are calling at once"),
    "unavailable": Kind(503, "Something we need is away"),
}
"""Every code there is."""

_SAME_AS: Mapping[str, str] = {
    "group_missing": "not_found",
    "subject_missing": "not_found",
    "subscription_missing": "not_found",
    "secret_unavailable": "unavailable",
    "error": "internal_error",
}
"""Categories of the engine that have no code of their own here. One that is in neither table is a conflict."""

_RETRY_AFTER: Mapping[str, str] = {"contention": "1", "overloaded": "1", "unavailable": "5"}
"""Seconds."""

_SENTENCES: Mapping[str, str] = {
    "bad_request": "The request could not be read.",
    "not_found": "There is nothing at this address.",
    "method_not_allowed": "This address does not take this method.",
    "request_timeout": "The request did not arrive whole within the time that this API waits for it.",
    "content_too_large": "The body is larger than this API takes.",
    "unsupported_media_type": "The body must be sent as application/json.",
    "too_many_requests": "Too many requests have failed within a minute. Those that succeed are not counted.",
    "head_too_large": "The request line and the headers are together larger than this API takes.",
    "internal_error": "The request failed; nothing was changed by it. The request id finds it in the log.",
    "contention": "Another transaction was changing the same thing; nothing was changed by this one.",
    "overloaded": "More requests are under way than this API takes at once; this one was not begun.",
    "unavailable": "What this needs cannot be reached at the moment; whether it was done is to be seen by reading again.",
}


class Problem(rfc9457.Problem):
    """An answer by its code."""

    def __init__(
        self,
        code: str,
        detail: str | None = None,
        *,
        errors: Sequence[Mapping[str, str]] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        kind = KINDS[code]
        sent = dict(headers or {})
        if code in _RETRY_AFTER:
            sent["Retry-After"] = _RETRY_AFTER[code]
        extras: dict[str, Any] = {"code": code, **({"errors": list(errors)[:MAX_ERRORS]} if errors else {})}
        super().__init__(kind.title, code, detail or _SENTENCES.get(code), kind.status, sent, **extras)


def code_of(category: str) -> str:
    """The code that answers a refusal of this category."""
    code = _SAME_AS.get(category, category)
    return code if code in KINDS else "conflict"


def error_at(path: str, code: str, message: str) -> dict[str, str]:
    """One entry of `errors`."""
    return {"path": path, "code": code, "message": message}
