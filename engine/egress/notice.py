"""The words of a notice. Workflows send codes; the text is the realm's `workflow_notice` template, by default English.

A template may show its four variables, choose by them, and change letters' case. It has no loops, calls, attributes
or arithmetic: what it writes is at most its own length times that of a name, and no template can be slow.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from types import MappingProxyType

from jinja2 import StrictUndefined, Template, TemplateError, nodes
from jinja2.sandbox import SandboxedEnvironment

from engine.core.errors import Refused

WORDING = MappingProxyType(
    {
        "welcome": "Welcome: the account is ready",
        "access_granted": "Access has been granted",
        "access_expiring": "Access is about to expire",
        "access_removed": "Access has been removed",
        "approval_requested": "A request is waiting for approval",
        "account_suspended": "The account has been suspended",
        "offboarding": "The account is being closed",
    }
)
"""Every notice code and what it says; the template's `notice`."""

SUBJECT = "{{ realm }}: {{ notice }}"
"""The default subject."""

BODY = """\
Hello,

{{ notice }}.

Realm: {{ realm }}
Workflow: {{ workflow }}
Time: {{ time }}

This message was sent by an automatic workflow. If it comes as a surprise, ask an administrator of {{ realm }}.
"""
"""The default body, plain text."""

VARIABLES = frozenset({"realm", "workflow", "notice", "time"})

LONGEST_SUBJECT_TEMPLATE = 500
LONGEST_BODY_TEMPLATE = 16 * 1024
LONGEST_SUBJECT = 200
"""Characters a subject is cut to."""
LONGEST_BODY = 128 * 1024
"""Characters a body may have once it is rendered."""
LONGEST_NAME = 100
"""Characters of a realm's or workflow's name that are shown."""

_DEEPEST = 20
_ALLOWED = (
    *(nodes.Template, nodes.Output, nodes.TemplateData, nodes.Name, nodes.Const),
    *(
        nodes.If,
        nodes.CondExpr,
        nodes.Compare,
        nodes.Operand,
        nodes.And,
        nodes.Or,
        nodes.Not,
        nodes.Concat,
        nodes.Filter,
    ),
)
_FILTERS = frozenset({"upper", "lower", "capitalize", "title", "trim"})

_environment = SandboxedEnvironment(undefined=StrictUndefined, autoescape=False, keep_trailing_newline=True)


@dataclass(frozen=True, slots=True)
class Notice:
    """A rendered notice."""

    subject: str
    """One line."""
    body: str


def check_template(subject: str, body: str) -> None:
    """Raise Refused("validation_failed", path="subject" or "body") for a template that breaks a rule."""
    longest = "\N{GREEK SMALL LETTER IOTA WITH DIALYTIKA AND TONOS}" * LONGEST_NAME  # three characters in upper case
    for code in WORDING:
        render(code, realm=longest, workflow=longest, at=datetime(2026, 10, 10, tzinfo=UTC), subject=subject, body=body)


def render(code: str, *, realm: str, workflow: str, at: datetime, subject: str = SUBJECT, body: str = BODY) -> Notice:
    """The notice `code` in the words of a template. `realm` and `workflow` are names; `at` is aware.

    Raises Refused("validation_failed") for a template that `check_template` would not take. A KeyError is a bug: the
    codes are checked with the definition.
    """
    variables = {
        "realm": _one_line(realm)[:LONGEST_NAME],
        "workflow": _one_line(workflow)[:LONGEST_NAME],
        "notice": WORDING[code],
        "time": at.astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    }
    heading = _one_line(_written(subject, variables, "subject", LONGEST_SUBJECT_TEMPLATE))[:LONGEST_SUBJECT]
    if not heading:
        raise _refused("subject", "writes an empty subject")
    return Notice(heading, _printable(_written(body, variables, "body", LONGEST_BODY_TEMPLATE)))


def _written(source: str, variables: dict[str, str], path: str, longest: int) -> str:
    if len(source) > longest:
        raise _refused(path, f"is longer than {longest} characters")
    try:
        return "".join(_bounded(_compiled(source, path).generate(variables), path))
    except (TemplateError, SyntaxError, RecursionError, MemoryError, TypeError, ValueError):
        raise _refused(path, "cannot be read or written") from None


@lru_cache(maxsize=256)
def _compiled(source: str, path: str) -> Template:
    _check(_environment.parse(source), path)
    return _environment.from_string(source)


def _check(tree: nodes.Template, path: str) -> None:
    """Walk the template before any of it is compiled, since compiling already works out its constants."""
    waiting: list[tuple[nodes.Node, int]] = [(tree, 0)]
    while waiting:
        node, depth = waiting.pop()
        if not isinstance(node, _ALLOWED) or depth > _DEEPEST:
            raise _refused(path, "may only show variables, choose between texts and change letters' case")
        if isinstance(node, nodes.Name) and node.name not in VARIABLES:
            raise _refused(path, f"may only use the variables {', '.join(sorted(VARIABLES))}")
        if isinstance(node, nodes.Filter) and (node.name not in _FILTERS or node.args or node.kwargs):
            raise _refused(path, f"may only use the filters {', '.join(sorted(_FILTERS))}")
        waiting.extend((child, depth + 1) for child in node.iter_child_nodes())


def _bounded(pieces: Iterator[str], path: str) -> Iterator[str]:
    left = LONGEST_BODY
    for piece in pieces:
        left -= len(piece)
        if left < 0:
            raise _refused(path, f"writes more than {LONGEST_BODY} characters")
        yield piece


def _one_line(text: str) -> str:
    """Every run of white space and of what cannot be printed (line breaks, bidi marks, surrogates) as one space."""
    return " ".join("".join(character if character.isprintable() else " " for character in text).split())


def _printable(text: str) -> str:
    lines = text.replace("\r\n", "\n").replace("\r", "\n")
    return "".join(character if character.isprintable() or character in "\n\t" else " " for character in lines)


def _refused(path: str, rule: str) -> Refused:
    return Refused("validation_failed", f"The {path} of the template {rule}.", path)
