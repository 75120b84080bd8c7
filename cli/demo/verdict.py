"""What must be so after the two acts, each told with a mark; and the table of attempts, read from the database."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from sqlalchemy import Connection, select

from cli.demo.receivers import Endpoint, MailReceiver
from cli.demo.story import Act, Company, StoryFailed, wait_for
from db.session import Database
from db.tables import AuditEvent, GroupMember, RoleAssignment, StepAttempt, WorkflowRun, table

assignments = table(RoleAssignment)
members = table(GroupMember)
attempts = table(StepAttempt)
runs = table(WorkflowRun)
audit_events = table(AuditEvent)


@dataclass
class Verdict:
    """Claims and whether they hold."""

    console: Console
    failed: int = 0

    def claim(self, what: str, *, holds: bool) -> None:
        """Tell a claim with its mark."""
        self.failed += not holds
        self.console.print(f"  [{'green]✓' if holds else 'red]✗'}[/] {what}")


def judge(
    verdict: Verdict, database: Database, company: Company, good: Act, bad: Act, mail: MailReceiver, endpoint: Endpoint
) -> None:
    """All claims about both acts. What people hold is read from the database."""
    _wait_for_mail(mail, good.email, bad.email)
    with database.begin() as connection:
        verdict.console.print("\n[bold]The onboarding that went well[/bold]")
        _judge_success(verdict, connection, company, good)
        calls = endpoint.of_run(good.run["id"])
        verdict.claim(f"the endpoint was called once ({len(calls)})", holds=len(calls) == 1)
        signed = bool(calls) and all(call.is_signed for call in calls)
        verdict.claim("the stock library finds the signature right", holds=signed)
        verdict.claim("the mail was received once", holds=len(mail.to(good.email)) == 1)
        verdict.console.print("\n[bold]The onboarding whose endpoint answered 410[/bold]")
        _judge_undo(verdict, connection, company, bad)
        calls = endpoint.of_run(bad.run["id"])
        verdict.claim(f"410 was not tried again ({len(calls)} call)", holds=len(calls) == 1)


def _judge_success(verdict: Verdict, connection: Connection, company: Company, act: Act) -> None:
    held = _assignments(connection, company, act)
    verdict.claim("the run succeeded", holds=_state(connection, company, act) == "succeeded")
    verdict.claim("the role is held", holds=len(held) == 1)
    lasts = bool(held) and held[0].expires_at - held[0].granted_at
    verdict.claim(
        "and expires 720 hours after it was given",
        holds=isinstance(lasts, timedelta) and abs(lasts - timedelta(hours=720)) < timedelta(minutes=1),
    )
    verdict.claim("the group was joined", holds=_is_in_group(connection, company, act))


def _judge_undo(verdict: Verdict, connection: Connection, company: Company, act: Act) -> None:
    verdict.claim("the run ended compensated", holds=_state(connection, company, act) == "compensated")
    verdict.claim("the role was taken back", holds=not _assignments(connection, company, act))
    verdict.claim("the group was left", holds=not _is_in_group(connection, company, act))
    order = connection.execute(
        select(audit_events.c.details["step_id"].as_string())
        .where(
            audit_events.c.realm_id == company.realm_id,
            audit_events.c.correlation_id == act.run["id"],
            audit_events.c.type == "workflow.step.compensated",
        )
        .order_by(audit_events.c.position)
    ).scalars()
    taken_back = list(order)
    verdict.claim(f"newest first ({', then '.join(taken_back)})", holds=taken_back == ["team", "grant"])


def _wait_for_mail(mail: MailReceiver, *addresses: str) -> None:
    for address in addresses:
        try:
            wait_for(partial(_mail_to, mail, address), f"mail to {address}")
        except StoryFailed:
            continue  # the claim about it will fail


def _mail_to(mail: MailReceiver, address: str) -> Any:
    return mail.to(address) or None


def _state(connection: Connection, company: Company, act: Act) -> Any:
    return connection.execute(
        select(runs.c.state).where(runs.c.realm_id == company.realm_id, runs.c.id == act.run["id"])
    ).scalar_one()


def _assignments(connection: Connection, company: Company, act: Act) -> Any:
    return connection.execute(
        select(assignments.c.expires_at, assignments.c.granted_at).where(
            assignments.c.realm_id == company.realm_id,
            assignments.c.user_id == act.subject_id,
            assignments.c.role_id == company.role_id,
            assignments.c.organization_id == company.organization_id,
        )
    ).all()


def _is_in_group(connection: Connection, company: Company, act: Act) -> bool:
    return bool(
        connection.execute(
            select(members.c.user_id).where(
                members.c.realm_id == company.realm_id,
                members.c.user_id == act.subject_id,
                members.c.group_id == company.group_id,
            )
        ).first()
    )


def attempts_tables(database: Database, company: Company) -> list[Table]:
    """Every attempt of the realm's runs, a table a run, as the database has it."""
    with database.begin() as connection:
        rows = connection.execute(
            select(
                attempts.c.run_id,
                runs.c.state.label("run_state"),
                attempts.c.step_id,
                attempts.c.step_type,
                attempts.c.attempt,
                attempts.c.state,
                attempts.c.error_category,
                attempts.c.result,
                attempts.c.compensation_strategy,
                attempts.c.compensation_state,
            )
            .join(runs, (runs.c.realm_id == attempts.c.realm_id) & (runs.c.id == attempts.c.run_id))
            .where(attempts.c.realm_id == company.realm_id)
            .order_by(attempts.c.run_id, attempts.c.step_index, attempts.c.attempt)
        ).all()
    shown: dict[str, Table] = {}
    for row in rows:
        if row.run_id not in shown:
            grid = Table(
                title=f"{row.run_id}: {row.run_state}",
                title_justify="left",
                box=box.SIMPLE,
                pad_edge=False,
                padding=(0, 1),
            )
            for heading in ("step", "type", "try", "outcome", "changed", "compensation"):
                grid.add_column(heading, no_wrap=True)
            shown[row.run_id] = grid
        changed = "" if row.result is None else "yes" if row.result["changed"] else "no"
        outcome = row.state if row.error_category is None else f"{row.state} ({row.error_category})"
        undo = row.compensation_state.replace("_", " ")
        if row.compensation_strategy in ("undo", "notify_endpoint"):
            undo = f"{row.compensation_strategy}: {undo}"
        shown[row.run_id].add_row(row.step_id, row.step_type, str(row.attempt), outcome, changed, undo)
    return list(shown.values())
