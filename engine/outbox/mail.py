"""Mail: queued notices go out over SMTP, in the words of the realm's template at that moment.

At least once: a worker that dies between the relay's answer and our record sends again, under the same Message-ID.
"""

from __future__ import annotations

import logging
import threading
from datetime import timedelta
from typing import Any

from db.rows import AnyRow
from db.session import Database
from db.statements import messages as statements
from db.statements.runs import now
from engine.core.errors import Refused, Unavailable
from engine.core.failpoints import hit
from engine.core.faults import message_of, place_of
from engine.core.retry import wait
from engine.core.settings import MailSettings
from engine.egress import message, notice
from engine.egress.smtp import Mailer, Session

log = logging.getLogger("engine.mail")

BATCH = 20
"""Messages taken at once; they share a connection."""

MAX_ATTEMPTS = 10
"""Tries of a message; with the backoff below that is a little over a day."""

BACKOFF = timedelta(minutes=1)


def deliver_due(database: Database, mailer: Mailer, settings: MailSettings, stop: threading.Event | None = None) -> int:
    """Deliver one batch of due messages. Returns how many were sent. Without a relay nothing is taken.

    Once `stop` is set no more are sent; those taken go back to the queue.
    """
    if not mailer.enabled:
        return 0
    lease = (settings.timeout * (BATCH + 1)).total_seconds()
    with database.begin() as connection:
        due = statements.take_due(connection, limit=BATCH, lease=lease)
        moment = now(connection)
    hit("mail.after_claim")
    sent = 0
    with mailer.open() as session:
        for row in due:
            if stop is not None and stop.is_set():
                _record(database, row, "queued", None)
            elif row.attempts > MAX_ATTEMPTS:  # whoever tried before did not live to say so
                _record(database, row, "failed", "retries_exhausted")
            else:
                sent += _deliver(database, session, settings, row, moment)
    return sent


def _deliver(database: Database, session: Session, settings: MailSettings, row: AnyRow, moment: Any) -> bool:
    try:
        if row.user_state == "deleted":
            raise Refused("subject_missing", "the recipient is not there any more")
        wording = {} if row.notice_subject is None else {"subject": row.notice_subject, "body": row.notice_body}
        text = notice.render(row.notice, realm=row.realm_name, workflow=row.workflow_name, at=row.created_at, **wording)
        session.send(message.compose(text, message_id=row.id, sender=settings.sender, recipient=row.email, at=moment))
        hit("mail.after_send")
    except Refused as failure:
        _record(database, row, "failed", failure.category)
        return False
    except Unavailable as failure:
        _put_off(database, row, failure.category)
        return False
    except Exception as error:  # of ours: it must not hold up the messages behind it
        log.error("the message %s could not be sent: %s at %s", row.id, message_of(error), place_of(error))
        _put_off(database, row, "error")
        return False
    _record(database, row, "sent", None)
    return True


def _put_off(database: Database, row: AnyRow, category: str) -> None:
    """Again later, unless it has been tried often enough."""
    _record(database, row, "failed" if row.attempts >= MAX_ATTEMPTS else "queued", category)


def _record(database: Database, row: AnyRow, state: str, category: str | None) -> None:
    with database.begin() as connection:
        moment = now(connection)
        queued = state == "queued"
        values = {
            "realm_id": row.realm_id,
            "id": row.id,
            "fence": row.fence,
            "state": state,
            "due_at": moment + wait(row.attempts, BACKOFF, row.id) if queued else None,
            "ended_at": None if queued else moment,
            "last_error": category,
        }
        if statements.END_MESSAGE.run(connection, [values]) == 0:
            log.warning("another worker has taken the message %s meanwhile", row.id)
