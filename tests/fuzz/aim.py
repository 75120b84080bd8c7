"""Aims what schemathesis generates: ids that are well formed become ids that exist, most of the time, and so with the few other
words that mean something only if they are the right ones. What is malformed stays as it is."""

from __future__ import annotations

import re
from collections.abc import Mapping, MutableMapping
from random import Random
from typing import Any

from schemathesis import Case, HookContext, Response

from tests.fuzz.known import ID, Known

DURATION = re.compile(r"(?:[0-9.]+h)?(?:[0-9.]+m)?(?:[0-9.]+s)?(?:[0-9]+ms)?")

WORDS: Mapping[str, tuple[str, ...]] = {
    "backoff": ("1s", "30s", "1h"),
    "created_before": ("1h", "2160h"),
    "every": ("1h", "720h"),
    "expires_in": ("1m", "72h", "720h"),
    "for": ("1m", "1h30m"),
    "granted_before": ("1h", "2160h"),
    "joined_before": ("1h", "2160h"),
    "last_active_before": ("1h", "2160h"),
    "suspended_before": ("1h", "2160h"),
}
"""Durations within their bounds, by the member that has them."""

SURE = 0.75
"""How often all that is in a case means something."""
MEANT = 0.6
"""How often a single word does in the other cases. Of the ids that do not, half are of the other realm."""


class Aim:
    """`before` and `after` are hooks around every call."""

    def __init__(self, known: Known, seed: int) -> None:
        self.known = known
        self.random = Random(seed)
        self._hosts = 0
        self._sure, self._spares = True, False

    def before(self, context: HookContext, case: Case[Any], kwargs: dict[str, Any]) -> None:
        """Aim a case, in place."""
        self._sure, self._spares = self._chance(SURE), case.method.upper() != "GET"
        self._path(case.path_parameters)
        self._cursor(case)
        for name, value in list(case.query.items()):
            case.query[name] = self._aimed(name, value, {})
        if isinstance(case.body, dict | list):
            case.body = self._aimed("", case.body, case.path_parameters)
        self._key(case.headers)

    def after(self, context: HookContext, case: Case[Any], response: Response) -> None:
        """Learn from an answer."""
        body = response.json() if response.content and _is_json(response) else None
        text = response.text if response.status_code < 400 else ""
        parameters = dict(case.path_parameters or {})
        self.known.learn(_name(case), parameters, response.status_code, body, text)

    def _path(self, parameters: MutableMapping[str, Any]) -> None:
        names = tuple(name for name in parameters if name != "realm_id")
        pool = self.known.together.get(names)
        plain = all(self._is_new(parameters[name]) or str(parameters[name]).isdecimal() for name in names)
        if pool and plain and self._meant():
            parameters.update(zip(names, self.random.choice(pool), strict=True))
        for name, value in list(parameters.items()):
            parameters[name] = self._aimed(name, value, parameters)

    def _cursor(self, case: Case[Any]) -> None:
        """One that this list gave, or none: a made up one is never taken."""
        if isinstance(case.query.get("cursor"), str) and self._meant():
            known = self.known.cursors.get(_name(case))
            del case.query["cursor"]
            if known:
                case.query["cursor"] = self.random.choice(known)

    def _aimed(self, name: str, value: Any, beside: Mapping[str, Any]) -> Any:
        if isinstance(value, dict):
            around = {**beside, **value}
            return _numbered({key: self._aimed(key, item, around) for key, item in value.items()})
        if isinstance(value, list):
            return [self._aimed(name, item, beside) for item in value]
        if name == "revision" and isinstance(value, int) and self._meant():
            return self._number(beside.get("workflow_id"))
        if not isinstance(value, str):
            return value
        if self._is_new(value) or (self._spares and value in self.known.untouchable and name != "approvers"):
            return self._id(name, value, beside)
        if name in WORDS and DURATION.fullmatch(value) and self._meant():
            return self.random.choice(WORDS[name])
        if name == "url" and value.lower().startswith("http"):
            self._hosts += 1
            return f"https://hooks-{self._hosts}.invalid/a"
        return value

    def _number(self, workflow_id: object) -> int:
        """Of a revision that this workflow has."""
        known = [number for of, number in self.known.together["workflow_id", "number"] if of == workflow_id]
        return int(self.random.choice(known or ["1"]))

    def _id(self, name: str, value: str, beside: Mapping[str, Any]) -> str:
        if value.startswith("rlm_"):
            known = self._sure or self._chance(0.9)
            return self.known.realm_id if known else self.random.choice(self.known.elsewhere["rlm"])
        pool = self.known.here.get(f"rol/{_boundary(name, beside)}") if value.startswith("rol_") else None
        if self._meant():
            return self.random.choice(pool or self.known.here.get(value[:3]) or [value])
        if self._chance(0.5) or value in self.known.untouchable:
            return self.random.choice(self.known.elsewhere.get(value[:3]) or [value])
        return value

    def _key(self, headers: MutableMapping[str, Any]) -> None:
        """The same keys again and again."""
        if re.fullmatch(r"[\x21-\x7e]{1,128}", str(headers.get("Idempotency-Key", ""))) and self._meant():
            headers["Idempotency-Key"] = f"key-{self.random.randrange(20)}"

    def _is_new(self, value: object) -> bool:
        """Made up, not told by an answer before."""
        return isinstance(value, str) and ID.fullmatch(value) is not None and value not in self.known.seen

    def _meant(self) -> bool:
        return self._sure or self._chance(MEANT)

    def _chance(self, of: float) -> bool:
        return self.random.random() < of


def _name(case: Case[Any]) -> str:
    return str(case.operation.definition.raw["operationId"])


def _is_json(response: Response) -> bool:
    return "json" in (response.headers.get("content-type") or [""])[0]


def _boundary(name: str, beside: Mapping[str, Any]) -> str:
    """Of the role that is wanted in this place."""
    if name == "role_ids":
        return "realm"
    if "scope" in beside:
        return str(beside["scope"])
    if "user_id" in beside:
        return "realm" if beside.get("organization_id") is None else "organization"
    return "organization"


def _numbered(value: dict[str, Any]) -> dict[str, Any]:
    """The steps of a definition have different ids."""
    steps = value.get("steps")
    if isinstance(steps, list) and all(isinstance(step, dict) and isinstance(step.get("id"), str) for step in steps):
        ids = [step["id"] for step in steps]
        if len(set(ids)) < len(ids):
            value["steps"] = [{**step, "id": f"s{index}"} if step["id"] else step for index, step in enumerate(steps)]
    return value
