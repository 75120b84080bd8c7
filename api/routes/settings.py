"""Settings of a realm: its policy, and the wording of the notices that workflows send."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from pydantic import Field

from api.auth import Caller, permitted
from api.bodies import StrictRoute
from api.shapes import Answer, Body, unset
from api.transaction import Transaction
from db.statements import realms as reads
from engine.core.errors import Refused
from engine.egress import notice
from engine.lifecycle import settings

router = APIRouter(tags=["settings"], route_class=StrictRoute)

Reader = Annotated[Caller, permitted("realm.settings.write")]
Writer = Annotated[Caller, permitted("realm.settings.write", checked_by_verb=True)]


class Extensions(Answer):
    """The policy. `workflow_publish_approval`: workflows made while it is true need an approved revision to be published."""

    workflow_publish_approval: bool


class WorkflowNotice(Answer):
    """A template of notices: text with `{{ realm }}`, `{{ workflow }}`, `{{ notice }}` and `{{ time }}`."""

    subject: str
    body: str


class Settings(Answer):
    """`workflow_notice` is null where notices are in the product's own words, which `workflow_notice_default` always has."""

    extensions: Extensions
    workflow_notice: WorkflowNotice | None
    workflow_notice_default: WorkflowNotice


class ExtensionsChanges(Body):
    """What is left out stays."""

    workflow_publish_approval: bool = unset()


class WorkflowNoticeChanges(Body):
    """A part that is left out stays; where the realm has no wording yet, it is taken from the product's."""

    subject: Annotated[
        str, Field(min_length=1, max_length=notice.LONGEST_SUBJECT_TEMPLATE, examples=["{{ realm }}: {{ notice }}"])
    ] = unset()
    body: Annotated[
        str, Field(min_length=1, max_length=notice.LONGEST_BODY_TEMPLATE, examples=["{{ notice }} at {{ time }}."])
    ] = unset()


class SettingsChanges(Body):
    """What is left out stays. `workflow_notice` null: the product's own words."""

    extensions: ExtensionsChanges = unset()
    workflow_notice: WorkflowNoticeChanges | None = unset()


@router.get("/settings")
def get_settings(caller: Reader, connection: Transaction) -> Settings:
    """The settings of the realm."""
    return _shown(connection, caller)


@router.patch("/settings")
def change_settings(caller: Writer, connection: Transaction, body: SettingsChanges) -> Settings:
    """Change settings. Workflows that exist keep what they were made under; notices that are queued go out in the new words."""
    settings.change(connection, caller.cause, **body.model_dump(exclude_unset=True))
    return _shown(connection, caller)


def _shown(connection: Transaction, caller: Caller) -> Settings:
    row = reads.settings(connection, caller.realm_id)
    if row is None:
        raise Refused("not_found", "this realm does not exist")
    worded = row.notice_subject is not None
    return Settings(
        extensions=Extensions(workflow_publish_approval=row.workflow_publish_approval),
        workflow_notice=WorkflowNotice(subject=row.notice_subject, body=row.notice_body) if worded else None,
        workflow_notice_default=WorkflowNotice(subject=notice.SUBJECT, body=notice.BODY),
    )
