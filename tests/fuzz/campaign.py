"""A campaign: schemathesis, all phases and all checks, against the running API."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import schemathesis
from schemathesis.engine import events, from_schema
from schemathesis.hooks import GLOBAL_HOOK_DISPATCHER

from db.session import Database
from engine.lifecycle.worker import Worker
from tests.calling import ISSUER, Api, an_api
from tests.driver import working
from tests.fuzz import echo
from tests.fuzz.aim import Aim
from tests.fuzz.excuses import Excused
from tests.fuzz.peopled import peopled
from tests.fuzz.tally import Tally


@dataclass(frozen=True)
class Size:
    """How much of everything."""

    examples: int
    """Cases of an operation in the phase `fuzzing`, of either kind."""
    scenarios: int
    """Chains of calls in the phase `stateful`."""
    whole: bool = True
    """Whether every keyword of the schemas is tried on its own, and everything that was seen in an answer is an example: most
    of the cases are of this kind, whatever else is asked for."""


def play(database: Database, seed: int, size: Size, told: Callable[[str], None] = lambda _: None) -> Tally:
    """A campaign over a new realm in this database, with a worker at work. `told` hears of the progress."""
    with an_api(database) as api, working(database) as worker:
        known, approver = peopled(api.realm, worker, 14 if size.whole else 1)
        told(f"the realm is peopled: {sum(map(len, known.here.values()))} ids")
        with _at_work(worker):
            return _played(api, approver, seed, size, Aim(known, seed), told)


def _played(api: Api, approver: str, seed: int, size: Size, aim: Aim, told: Callable[[str], None]) -> Tally:
    tally = Tally()
    document = api.client.get("/openapi.json").json()
    schema = schemathesis.openapi.from_dict(document, config=_config(api, approver, seed, size))
    for methods in document["paths"].values():
        for operation in methods.values():
            tally.documented[operation["operationId"]] = {int(status) for status in operation["responses"]}
    schema.hooks.register_hook_with_name(Excused(tally.excused).filter_failure, "filter_failure")
    schema.hooks.register_hook_with_name(aim.after, "after_call")
    with _before_every_call(aim.before):
        for event in from_schema(schema).execute():
            tally.take(event)
            if isinstance(event, events.PhaseStarted):
                told(f"{event.phase.name.value}, after {tally.cases} cases")
            elif isinstance(event, events.ScenarioFinished) and tally.cases // 500 > tally.told:
                tally.told = tally.cases // 500
                told(f"{tally.cases} cases")
    return tally


def _config(api: Api, approver: str, seed: int, size: Size) -> schemathesis.Config:
    lifetime = timedelta(hours=2)
    admin = ISSUER.issue(api.realm.id, api.realm.admin, "admin", lifetime)
    account = ISSUER.issue(api.realm.id, approver, "account", lifetime)
    return schemathesis.Config.from_dict(
        {
            "seed": seed,
            "base-url": str(api.client.base_url),
            "workers": 1,
            "continue-on-failure": True,
            "auth": {"openapi": {"admin": {"bearer": admin}, "account": {"bearer": account}}},
            "generation": {"max-examples": size.examples, "no-shrink": True, "database": "none"},
            "phases": {
                "examples": {"extra-data-sources": {"responses": size.whole}},
                "coverage": {"enabled": size.whole},
                "stateful": {"generation": {"max-examples": size.scenarios}},
            },
        }
    )


CHECKS = (echo.NothingSentIsRepeated,)
"""Besides those that schemathesis has. To name them is to have them."""


@contextmanager
def _before_every_call(hook: Callable[..., None]) -> Iterator[None]:
    """Hooks before calls are of the whole process: this one until the block ends."""
    GLOBAL_HOOK_DISPATCHER.register_hook_with_name(hook, "before_call")
    try:
        yield
    finally:
        GLOBAL_HOOK_DISPATCHER.unregister(hook)


@contextmanager
def _at_work(worker: Worker) -> Iterator[None]:
    """The worker makes passes in a thread until the block ends; what it raises is raised then."""
    stop, errors = threading.Event(), list[Exception]()

    def passes() -> None:
        try:
            while not stop.is_set():
                if worker.run_pass().idle:
                    worker.wait(stop)
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=passes, name="worker")
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(60)
    if errors:
        raise errors[0]
