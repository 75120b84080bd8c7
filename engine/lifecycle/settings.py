"""The realm's settings, by hand: its policy, and the wording of its notices.

    {"extensions": {"workflow_publish_approval": true}, "workflow_notice": {"subject": "...", "body": "..."}}

Workflows that exist keep what they were made under (source: "Separation of duties"); a notice goes out in the wording of the
moment it is sent. What a template says is in no audit row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from sqlalchemy import Connection

from db.statements import realms as statements
from engine.core.errors import Refused
from engine.core.ledger import Write
from engine.core.trail import Cause, audit
from engine.directory.authority import Authority
from engine.directory.commands.acting import act, allow
from engine.directory.effects import Effect
from engine.directory.facts import Facts, Wanted
from engine.egress import notice

PERMISSION = "realm.settings.write"

SET_SETTINGS = Write(8, statements.SET_SETTINGS)


@dataclass(frozen=True, slots=True)
class Settings:
    """What a realm has set."""

    workflow_publish_approval: bool
    notice_subject: str | None
    """None: the product's own wording; then `notice_body` is None too."""
    notice_body: str | None


def change(connection: Connection, cause: Cause, **changes: Any) -> bool:
    """Change `extensions` (its `workflow_publish_approval`) and `workflow_notice` (its `subject` and `body`; None: the product's
    own wording). What is left out stays. Returns whether that changed anything. Needs `realm.settings.write`.

    Raises Refused (`forbidden`; `validation_failed` with the part of a template that breaks a rule).
    """

    def command(_: Facts, held: Authority) -> Effect:
        allow(held, PERMISSION)
        row = statements.lock_settings(connection, cause.realm_id)
        if row is None:
            raise Refused("not_found", "this realm does not exist")
        before = Settings(**row._mapping)
        after = _reworded(before, changes["workflow_notice"]) if "workflow_notice" in changes else before
        after = replace(after, **changes.get("extensions", {}))
        return _changed(cause, before, after)

    return act(connection, cause, Wanted(), command).changed


def _reworded(before: Settings, wording: Mapping[str, str] | None) -> Settings:
    """With other words. A part that the realm has not worded itself is the product's, as it is now."""
    if wording is None:
        return replace(before, notice_subject=None, notice_body=None)
    if not wording:
        return before
    subject = notice.SUBJECT if before.notice_subject is None else before.notice_subject
    body = notice.BODY if before.notice_body is None else before.notice_body
    subject, body = wording.get("subject", subject), wording.get("body", body)
    try:
        notice.check_template(subject, body)
    except Refused as refusal:
        raise Refused(refusal.category, refusal.message, f"workflow_notice.{refusal.path}") from None
    return replace(before, notice_subject=subject, notice_body=body)


_MEMBERS = {
    "workflow_publish_approval": "extensions.workflow_publish_approval",
    "notice_subject": "workflow_notice.subject",
    "notice_body": "workflow_notice.body",
}


def _changed(cause: Cause, before: Settings, after: Settings) -> Effect:
    changed_fields = [member for name, member in _MEMBERS.items() if getattr(before, name) != getattr(after, name)]
    if not changed_fields:
        return Effect(False)
    target, details = ("realm", cause.realm_id), {"changed_fields": changed_fields}
    return Effect(
        True,
        [
            SET_SETTINGS(id=cause.realm_id, **asdict(after)),
            audit(cause, "realm.settings.changed", target, details),
        ],
    )
