"""Webhook subscriptions: where a realm's calls go. A secret is shown once, when it is made."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query, Request
from pydantic import Field

from api.auth import Caller, permitted
from api.bodies import StrictRoute
from api.paging import Page, PageQuery, page_of
from api.parts import parts_of
from api.shapes import Answer, At, Body, Documented, Name
from api.transaction import Transaction
from db.statements import reads_subscriptions as reads
from engine.core.errors import Refused
from engine.core.ids import OrganizationId, SubscriptionId
from engine.outbox import subscriptions

router = APIRouter(tags=["webhooks"], route_class=StrictRoute)

SubscriptionPath = Annotated[SubscriptionId, Path(description="The webhook subscription.")]
Reader = Annotated[Caller, permitted("realm.webhooks.read")]
Writer = Annotated[Caller, permitted("realm.webhooks.write", checked_by_verb=True)]
State = Literal["active", "paused", "disabled"]


class WebhookSubscription(Answer):
    """A destination. Until `previous_secret_until` calls carry a second signature, with the secret before."""

    id: str
    name: str
    organization_id: str | None
    url: str
    state: State
    allow_private_network: bool
    previous_secret_until: At | None
    created_at: At


class SubscriptionWithSecret(WebhookSubscription):
    """With the secret that calls are signed with. It cannot be read again."""

    secret: str


class NewSubscription(Body):
    """Only a subscription without an organization can be called by a workflow."""

    name: Name
    url: Annotated[
        str,
        Field(min_length=1, max_length=2048, examples=["https://hooks.example.org/tenure"]),
        Documented({"format": "uri", "pattern": "^[Hh][Tt][Tt][Pp][Ss]?://"}),
    ]
    organization_id: OrganizationId | None = None
    allow_private_network: bool = False


class SubscriptionsQuery(PageQuery):
    state: State | None = None


@router.get("/webhook-subscriptions")
def list_subscriptions(
    caller: Reader, connection: Transaction, query: Annotated[SubscriptionsQuery, Query()]
) -> Page[WebhookSubscription]:
    """The webhook subscriptions of the realm, the newest first."""
    return page_of(
        WebhookSubscription,
        query,
        (caller.realm_id, "webhook-subscriptions"),
        lambda after, limit: reads.subscriptions_page(connection, caller.realm_id, after, limit, state=query.state),
    )


@router.post("/webhook-subscriptions", status_code=201)
def create_subscription(
    caller: Writer, connection: Transaction, request: Request, body: NewSubscription
) -> SubscriptionWithSecret:
    """Make a subscription. Its secret is in this answer and nowhere else."""
    keyring = parts_of(request).keyring
    subscription_id, secret = subscriptions.create(connection, caller.cause, keyring, **body.model_dump())
    return _with_secret(connection, caller, subscription_id, secret)


@router.get("/webhook-subscriptions/{subscription_id}")
def get_subscription(caller: Reader, connection: Transaction, subscription_id: SubscriptionPath) -> WebhookSubscription:
    """One webhook subscription."""
    return _shown(connection, caller, subscription_id)


@router.delete("/webhook-subscriptions/{subscription_id}", status_code=204)
def delete_subscription(caller: Writer, connection: Transaction, subscription_id: SubscriptionPath) -> None:
    """Delete a subscription, with its secret and its URL. Calls of workflows to it fail from then on."""
    subscriptions.delete(connection, caller.cause, subscription_id)


@router.post("/webhook-subscriptions/{subscription_id}/rotate-secret")
def rotate_secret(
    caller: Writer, connection: Transaction, request: Request, subscription_id: SubscriptionPath
) -> SubscriptionWithSecret:
    """Give it a new secret, shown once. For 24 hours calls are signed with both."""
    secret = subscriptions.rotate_secret(connection, caller.cause, parts_of(request).keyring, subscription_id)
    return _with_secret(connection, caller, subscription_id, secret)


@router.post("/webhook-subscriptions/{subscription_id}/pause")
def pause_subscription(
    caller: Writer, connection: Transaction, subscription_id: SubscriptionPath
) -> WebhookSubscription:
    """Let calls wait."""
    subscriptions.change_state(connection, caller.cause, subscription_id, "pause")
    return _shown(connection, caller, subscription_id)


@router.post("/webhook-subscriptions/{subscription_id}/resume")
def resume_subscription(
    caller: Writer, connection: Transaction, subscription_id: SubscriptionPath
) -> WebhookSubscription:
    """Let calls go out again."""
    subscriptions.change_state(connection, caller.cause, subscription_id, "resume")
    return _shown(connection, caller, subscription_id)


@router.post("/webhook-subscriptions/{subscription_id}/disable")
def disable_subscription(
    caller: Writer, connection: Transaction, subscription_id: SubscriptionPath
) -> WebhookSubscription:
    """Let calls fail."""
    subscriptions.change_state(connection, caller.cause, subscription_id, "disable")
    return _shown(connection, caller, subscription_id)


def _shown(connection: Transaction, caller: Caller, subscription_id: str) -> WebhookSubscription:
    row = reads.subscription(connection, caller.realm_id, subscription_id)
    if row is None:
        raise Refused("not_found", "this webhook subscription does not exist")
    return WebhookSubscription.model_validate(row)


def _with_secret(connection: Transaction, caller: Caller, subscription_id: str, secret: str) -> SubscriptionWithSecret:
    return SubscriptionWithSecret(**dict(_shown(connection, caller, subscription_id)), secret=secret)
