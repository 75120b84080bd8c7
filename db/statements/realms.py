"""A realm's settings: read, and locked for change."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Row, Select, bindparam, select

from db.statements.bulk import update_rows
from db.tables import Realm, table
from db.tables.columns import ID

realms = table(Realm)

_settings: Select[Any] = select(
    realms.c.workflow_publish_approval, realms.c.notice_subject, realms.c.notice_body
).where(realms.c.id == bindparam("of_realm", type_=ID))
_settings_locked = _settings.with_for_update(key_share=True)


def settings(connection: Connection, realm_id: str) -> Row[Any] | None:
    """The realm's policy and the wording of its notices."""
    return connection.execute(_settings, {"of_realm": realm_id}).one_or_none()


def lock_settings(connection: Connection, realm_id: str) -> Row[Any] | None:
    """The same, locked FOR NO KEY UPDATE: nothing that is made in the realm meanwhile waits for it."""
    return connection.execute(_settings_locked, {"of_realm": realm_id}).one_or_none()


SET_SETTINGS = update_rows(
    realms, ["id"], ["workflow_publish_approval", "notice_subject", "notice_body"], name="set realm settings"
)
