"""Which problem answers which failure. Those that nobody expected are for edge.py."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Mapping
from typing import Any

import rfc9457
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import iter_route_contexts
from fastapi_problem.handler import ExceptionHandler, new_exception_handler
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from api.parts import parts_of
from api.problems import KINDS, MAX_ERRORS, TYPE, Problem, code_of, error_at
from db.errors import DatabaseUnavailable
from engine.core.canonical import path_to
from engine.core.errors import DefinitionInvalid, Refused, Unavailable
from engine.core.faults import is_contention, is_outage, message_of, sqlstate

log = logging.getLogger("api")

BODY_REFUSED = "tenure.body_refused"
"""Where bodies.py leaves in the scope what is wrong with a body as JSON."""


_OF_STATUS: Mapping[int, str] = {
    400: "bad_request",
    404: "not_found",
    405: "method_not_allowed",
    408: "request_timeout",
    413: "content_too_large",
    415: "unsupported_media_type",
}


_TOO_MUCH: Mapping[str, tuple[str, ...]] = {
    "57014": ("overloaded", "The database did not get this done within the time it has; nothing was changed by it."),
    "53200": ("unavailable",),
}
"""SQLSTATE of a statement that took too long or too much memory -> our code and sentence. No fault of the caller's: another time
it is done. A worker takes it otherwise (engine/core/faults.py): there it is told of the run."""


def install(app: FastAPI) -> None:
    """Answer every known failure of the application with a problem. The unknown ones are for edge.py."""
    handler = new_exception_handler(
        unhandled_wrappers={"default": _Unexpected},  # type: ignore[dict-item]  # any callable that gives a Problem
        handlers={
            Refused: _refused,
            DefinitionInvalid: _definition_invalid,
            Unavailable: _unavailable,
            DatabaseUnavailable: _unavailable,
            SQLAlchemyError: _database,
        },
        post_hooks=[_count],
        documentation_uri_template=TYPE,
        http_exception_handler=_http,
        request_validation_handler=_request_invalid,
    )
    for failure in (*handler.handlers, rfc9457.Problem):
        app.add_exception_handler(failure, handler)


def log_unexpected(error: BaseException, request_id: str) -> None:
    """Where an error came from, never what it says: its text may hold what a caller sent."""
    frames = "".join(traceback.format_tb(error.__traceback__))
    log.error("request %s failed: %s\n%s", request_id, message_of(error), frames)


class _Unexpected(Problem):
    """The wrapper of fastapi-problem for errors nobody expected. It is given the error's text, and drops it (STACK.md, trap
    12)."""

    def __init__(self, detail: str | None = None, **_: Any) -> None:
        super().__init__("internal_error")


def _count(content: dict[str, Any], request: Request, answer: Response) -> tuple[dict[str, Any], Response]:
    """A refusal counts against a caller who is known (auth.py says as whom). Who is not known was counted there."""
    caller = getattr(request.state, "counted_as", None)
    if caller is not None and 400 <= answer.status_code < 500 and answer.status_code not in (401, 429):
        parts_of(request).limits.count_refusal(caller)
    return content, answer


def _refused(_: ExceptionHandler, request: Request, refusal: Refused) -> Problem:
    code = code_of(refusal.category)
    if KINDS[code].status >= 500:
        log_unexpected(refusal, request.state.request_id)
        return Problem(code)
    errors = [] if refusal.path is None else [error_at(refusal.path, code, refusal.message)]
    return Problem(code, _sentence(refusal.message), errors=errors)


def _definition_invalid(_: ExceptionHandler, __: Request, invalid: DefinitionInvalid) -> Problem:
    errors = [error_at(fault.path, fault.rule, fault.message) for fault in invalid.faults]
    return Problem("validation_failed", "The definition breaks a rule.", errors=errors)


def _unavailable(_: ExceptionHandler, __: Request, ___: Exception) -> Problem:
    return Problem("unavailable")


def _database(_: ExceptionHandler, request: Request, error: SQLAlchemyError) -> Problem:
    if is_contention(error):
        return Problem("contention")
    if is_outage(error):
        return Problem("unavailable")
    log_unexpected(error, request.state.request_id)
    state = sqlstate(error) if isinstance(error, DBAPIError) else None
    return Problem(*_TOO_MUCH.get(state or "", ("internal_error",)))


def _http(_: ExceptionHandler, request: Request, error: HTTPException) -> Problem:
    code = _OF_STATUS.get(error.status_code, "bad_request" if error.status_code < 500 else "internal_error")
    headers = {"Allow": _offered(request)} if error.status_code == 405 else error.headers
    return Problem(code, headers=headers)


def _offered(request: Request) -> str:
    """The methods of all routes of this address. The router names those of the first of them alone."""
    contexts = [each for each in iter_route_contexts(request.app.routes) if each.methods]
    path = next((each.path for each in contexts if each.path_regex.match(request.scope["path"])), None)
    if path is None:  # no route: the files of the documentation
        return "GET, HEAD"
    return ", ".join(sorted({method for each in contexts if each.path == path for method in each.methods or ()}))


def _request_invalid(_: ExceptionHandler, request: Request, invalid: RequestValidationError) -> Problem:
    """What FastAPI found wrong. A path that cannot be an id or a number names nothing that exists."""
    details = invalid.errors()
    if any(detail["loc"][0] == "path" for detail in details):
        return Problem("not_found", "This does not exist.")
    if any(detail["loc"][0] == "body" for detail in details):
        if not _is_json(request):
            return Problem("unsupported_media_type")
        refusal: Refused | None = request.scope.get(BODY_REFUSED)
        if refusal is not None:
            at = error_at(refusal.path or "", "json", refusal.message)
            return Problem("validation_failed", "The body is not JSON that can be taken.", errors=[at])
    errors = [_error(detail) for detail in details[:MAX_ERRORS]]
    return Problem("validation_failed", "Something in the request is not as it must be.", errors=errors)


def _is_json(request: Request) -> bool:
    """Whether a body that was sent said it is JSON. None sent: nothing to say."""
    if request.headers.get("content-length", "0") == "0" and "transfer-encoding" not in request.headers:
        return True
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    return kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json"))


def _error(detail: Mapping[str, Any]) -> dict[str, str]:
    rule, sentence = _RULES.get(detail["type"], ("invalid", "is not valid"))
    if detail["type"].startswith("tenure_"):
        rule, sentence = detail["type"].removeprefix("tenure_"), detail["msg"]
    way = detail["loc"][1:]
    return error_at(path_to("", way), rule, sentence.format(**detail.get("ctx", {})) if "{" in sentence else sentence)


_RULES: Mapping[str, tuple[str, str]] = {
    "extra_forbidden": ("unknown_member", "is not a member that belongs here"),
    "missing": ("required", "is required"),
    "literal_error": ("one_of", "must be {expected}"),
    "string_pattern_mismatch": ("pattern", "does not have the form that is asked for"),
    "string_too_short": ("length", "must have at least {min_length} characters"),
    "string_too_long": ("length", "must have at most {max_length} characters"),
    "too_short": ("length", "must have at least {min_length} items"),
    "too_long": ("length", "must have at most {max_length} items"),
    "string_type": ("type", "must be a string"),
    "int_type": ("type", "must be a whole number"),
    "bool_type": ("type", "must be true or false"),
    "list_type": ("type", "must be an array"),
    "dict_type": ("type", "must be an object"),
    "model_type": ("type", "must be an object"),
    "model_attributes_type": ("type", "must be an object"),
    "greater_than_equal": ("range", "must be at least {ge}"),
    "less_than_equal": ("range", "must be at most {le}"),
}
"""Type of pydantic's error -> our rule and sentence."""


def _sentence(message: str) -> str:
    """A refusal as the sentence it is."""
    sentence = message[:1].upper() + message[1:]
    return sentence if sentence.endswith(".") else f"{sentence}."
