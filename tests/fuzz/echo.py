"""A check of our own: a refusal repeats nothing that was sent (lifecycle.md, "Routes")."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import schemathesis
from schemathesis import Case, CheckContext, Response

SHORT = 10
"""Characters that a text must have to be known again."""


@schemathesis.check
class NothingSentIsRepeated:
    """Neither ids nor values; the names of members are what a path of an error names."""

    def __init__(self) -> None:
        self._ours = ""
        """The words of the document: those may stand in an answer, whoever said them first."""

    def after_response(self, ctx: CheckContext, response: Response, case: Case[Any]) -> None:
        """Called with every answer."""
        if response.status_code < 400:
            return
        self._ours = self._ours or json.dumps(case.operation.schema.raw_schema, ensure_ascii=False)
        for sent in _texts([case.path_parameters, case.query, case.body]):
            assert sent in self._ours or sent not in response.text, f"the answer repeats {sent!r}"


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str) and len(value) >= SHORT:
        yield value
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for item in inside:
        yield from _texts(item)
