"""The application. It is served by `python -m api.server`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi_offline import FastAPIOffline
from starlette.concurrency import run_in_threadpool

from api import handlers
from api.edge import Edge
from api.issuer import LocalIssuer
from api.measured import Measured
from api.metrics import Metrics
from api.openapi import described
from api.parts import Parts
from api.routes import (
    audit_events,
    diagnostics,
    events,
    groups,
    health,
    keys,
    metrics,
    my_approvals,
    organizations,
    outbox_events,
    permissions,
    revisions,
    role_assignments,
    roles,
    service_principals,
    settings,
    users,
    webhook_subscriptions,
    workflow_approvals,
    workflow_life,
    workflow_runs,
    workflows,
)
from api.settings import ApiSettings
from db.session import Database
from engine.egress.secrets import Keyring

IN_REALM: tuple[APIRouter, ...] = (
    workflows.router,
    workflow_life.router,
    revisions.router,
    diagnostics.router,
    workflow_runs.router,
    workflow_approvals.router,
    my_approvals.router,
    users.router,
    organizations.router,
    groups.router,
    roles.router,
    role_assignments.router,
    service_principals.router,
    webhook_subscriptions.router,
    settings.router,
    permissions.router,
    audit_events.router,
    events.router,
    outbox_events.router,
)
"""Below /api/v1/realms/{realm_id}."""

OUTSIDE: tuple[APIRouter, ...] = (health.router, keys.router, metrics.router)

PREFIX = "/api/v1/realms/{realm_id}"


def create_app(
    database: Database | None = None,
    settings: ApiSettings | None = None,
    keyring: Keyring | None = None,
    issuer: LocalIssuer | None = None,
) -> FastAPI:
    """The API over a database. What is not given comes from the environment and the data folder when it starts."""
    settings = settings or ApiSettings()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        """Not before the start: to describe itself, an application needs no database."""
        parts = await run_in_threadpool(Parts.open, settings, database, keyring, issuer)
        app.state.parts = parts
        yield
        if database is None:
            await run_in_threadpool(parts.database.close)

    app = FastAPIOffline(
        title="Tenure",
        version="1",
        description="Lifecycle workflows for the users of a realm.",
        openapi_url="/openapi.json",
        redoc_url=None,
        lifespan=lifespan,
        redirect_slashes=False,
        generate_unique_id_function=lambda route: route.name,
        telemetry={"logs": False},
    )
    for router in IN_REALM:
        app.include_router(router, prefix=PREFIX)
    for router in OUTSIDE:
        app.include_router(router)
    handlers.install(app)
    app.add_middleware(Edge, settings=settings)
    app.state.metrics = Metrics() if settings.metrics else None
    if app.state.metrics is not None:
        app.add_middleware(Measured, metrics=app.state.metrics)
    app.openapi = lambda: _once(app)  # type: ignore[method-assign]
    return app


def _once(app: FastAPI) -> dict[str, Any]:
    if app.openapi_schema is None:
        app.openapi_schema = described(app)
    return app.openapi_schema
