"""A realm with all that the steps of the crash tests need, and the hands that move its world on."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from db.session import Database
from engine.core.faults import is_outage
from engine.lifecycle import approvals
from tests.crash.receiver import SECRET, Call, Receiver
from tests.definitions import definition
from tests.factories import TestRealm, a_realm

Json = dict[str, Any]

T = TypeVar("T")

AWAY_FOR = 30.0
"""Seconds that the tests themselves wait for a database that is restarted."""

SUBJECTS = 2
"""Runs that a killed worker has in hand."""


@dataclass(frozen=True)
class Stage:
    """Where the runs of a test play."""

    acme: TestRealm
    organization: str
    role: str
    group: str
    elsewhere: str
    """A group of another organization, which no subject is a member of."""
    endpoint: str
    """A subscription whose receiver says yes."""
    approver: str

    @classmethod
    def built(cls, database: Database, receiver: Receiver, path: str = "/ok") -> Stage:
        """A new realm of this database."""
        acme = a_realm(database)
        organization = acme.organization()
        return cls(
            acme,
            organization,
            acme.role(None, "org.members.read"),
            acme.group(organization),
            acme.group(acme.organization()),
            acme.subscription(receiver.url(path), secret=SECRET, allow_private_network=True),
            acme.user(),
        )

    @property
    def database(self) -> Database:
        return self.acme.database

    @property
    def impossible(self) -> Json:
        """A step that fails for good: the group is another organization's."""
        return {"id": "fail", "type": "add_to_group", "group_id": self.elsewhere}

    def member(self) -> list[str]:
        """One new member of the organization."""
        return self.acme.users(1, self.organization)

    def members(self, count: int = SUBJECTS) -> list[str]:
        """New members of the organization."""
        return self.acme.users(count, self.organization)

    def newcomers(self, count: int = SUBJECTS) -> list[str]:
        """New users, not yet members."""
        return self.acme.users(count)

    def holders(self) -> list[str]:
        """New members who hold the role and are in the group."""
        made = self.teammates()
        for user_id in made:
            self.acme.grant(user_id, self.role, self.organization)
        return made

    def teammates(self) -> list[str]:
        """New members who are in the group."""
        made = self.members()
        for user_id in made:
            self.acme.join(user_id, self.group)
        return made

    def publish(self, steps: Sequence[Json], trigger: str = "manual") -> str:
        """A workflow of these steps, started by hand, by a membership or by a schedule over the holders of the role."""
        triggers: dict[str, Json] = {
            "manual": {"type": "manual"},
            "event": {"type": "event", "event_types": ["organization.membership.added"]},
            "schedule": {
                "type": "schedule",
                "every": "1h",
                "select": {"type": "role_holders", "role_id": self.role, "organization_id": self.organization},
            },
        }
        return self.acme.published(definition(*steps, triggers=[triggers[trigger]]))

    def five_steps(self) -> str:
        """A workflow of five internal steps, started by a membership: four changes, and the end."""
        steps: list[Json] = [
            {"id": "grant", "type": "assign_role", "role_id": self.role, "scope": "organization"},
            {"id": "team", "type": "add_to_group", "group_id": self.group},
            {"id": "tell", "type": "notify", "notice": "access_granted"},
            {"id": "leave", "type": "remove_from_group", "group_id": self.group},
            {"id": "done", "type": "end"},
        ]
        return self.publish(steps, "event")

    def unfinished(self) -> int:
        """Runs that have not ended, and events that may still start one."""
        (row,) = self.rows(
            "SELECT (SELECT count(*) FROM workflow_runs WHERE finished_at IS NULL)"
            " + (SELECT count(*) FROM outbox_events WHERE dispatched_at IS NULL AND set_aside_at IS NULL)"
        )
        return int(row[0])

    def begin(self, workflow_id: str, subjects: Sequence[str], trigger: str = "manual") -> None:
        """Have runs started for these subjects."""
        match trigger:
            case "event":
                self.acme.add_members(self.organization, subjects)
            case "schedule":
                self.execute("UPDATE schedule_triggers SET next_slot_at = next_slot_at - interval '1 hour'")
            case _:
                for user_id in subjects:
                    self.acme.run(workflow_id, user_id, self.organization)

    def decide_approvals(self, subjects: Sequence[str] | None = None) -> None:
        """The approver approves of whatever waits (about these subjects)."""
        asked = "SELECT id FROM workflow_approvals WHERE state = 'pending' AND (:all OR subject_id = ANY(:subjects))"
        for row in self.rows(asked, all=subjects is None, subjects=subjects or []):
            with self.database.begin() as connection:
                approvals.decide(connection, self.acme.by(self.approver), row.id, "approve")

    def let_waits_end(self, subjects: Sequence[str] | None = None) -> None:
        """A minute passes for whoever is parked by a `wait` (of these subjects)."""
        self.execute(
            "WITH ended AS (UPDATE workflow_step_attempts a"
            "  SET input = jsonb_set(a.input, '{until}', to_jsonb(now() - interval '1 second'))"
            "  FROM workflow_runs r WHERE (r.realm_id, r.id) = (a.realm_id, a.run_id) AND a.step_type = 'wait'"
            "  AND a.state = 'started' AND r.state = 'waiting' AND r.lease_owner IS NULL AND r.due_at > now()"
            "  AND (:all OR r.subject_id = ANY(:subjects))"
            "  RETURNING a.realm_id, a.run_id)"
            " UPDATE workflow_runs r SET due_at = now() FROM ended e"
            " WHERE (r.realm_id, r.id) = (e.realm_id, e.run_id) AND r.lease_owner IS NULL",
            all=subjects is None,
            subjects=subjects or [],
        )

    def let_retries_come(self) -> int:
        """Half a minute passes for whoever waits to try a compensation again."""
        return self.execute(
            "UPDATE workflow_runs SET due_at = now()"
            " WHERE state = 'compensating' AND lease_owner IS NULL AND due_at > now() + interval '2 seconds'"
        )

    def let_leases_end(self) -> int:
        """The time of every lease is over."""
        return self.execute(
            "UPDATE workflow_runs SET lease_expires_at = now(), due_at = now() WHERE lease_owner IS NOT NULL"
        )

    def let_mail_come(self) -> int:
        """Half a minute passes for messages that a dead worker had taken."""
        return self.execute("UPDATE messages SET due_at = now() WHERE due_at > now()")

    def end_sessions(self) -> int:
        """The server ends whatever sessions of workers are in a transaction at this moment. Returns how many."""
        with self.database.owner_engine.begin() as connection:
            ended = connection.execute(
                text(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE datname = current_database() AND application_name LIKE 'worker %' AND xact_start IS NOT NULL"
                )
            )
            return len(ended.all())

    def calls(self, receiver: Receiver) -> list[Call]:
        """What the endpoint got from the runs of this database."""
        return receiver.of(*(row.id for row in self.rows("SELECT id FROM workflow_runs")))

    def rows(self, statement: str, **values: Any) -> Sequence[Any]:
        """Ask the database; again, if it was away."""
        return self._run(lambda connection: connection.execute(text(statement), values).all())

    def execute(self, statement: str, **values: Any) -> int:
        """Change the world behind the engine's back; again, if the database was away. Returns how many rows."""
        return self._run(lambda connection: int(connection.execute(text(statement), values).rowcount))

    def _run(self, work: Callable[[Connection], T]) -> T:
        deadline = time.monotonic() + AWAY_FOR
        while True:
            try:
                with self.database.begin() as connection:
                    return work(connection)
            except DBAPIError as error:
                if not is_outage(error) or time.monotonic() > deadline:
                    raise
            time.sleep(0.1)
