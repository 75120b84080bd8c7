"""Figures for Prometheus."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import PlainTextResponse
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4

from api.auth import public
from api.bodies import StrictRoute
from api.metrics import Metrics
from api.parts import parts_of
from api.problems import Problem

router = APIRouter(tags=["health"], route_class=StrictRoute, dependencies=[public()])


@router.get("/metrics", response_class=PlainTextResponse)
async def get_metrics(request: Request) -> PlainTextResponse:
    """What this process has served, and what waits in the database, of all realms together. While the database is away,
    `tenure_database_up` is 0 and the rest goes on. 404 where the operator has switched it off."""
    metrics: Metrics | None = request.app.state.metrics
    if metrics is None:
        raise Problem("not_found")
    return PlainTextResponse(await metrics.text(parts_of(request)), media_type=CONTENT_TYPE_PLAIN_0_0_4)
