"""What one process of the API tells Prometheus: its requests, its place among the connections, and what the database says.

Labels are of closed lists: templates of routes, methods, classes of status, states. No realm, no user and nothing that was sent
shows, for whoever reads the figures needs no token.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector, generate_latest
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from sqlalchemy import QueuePool

from api.figures import Figures
from api.parts import Parts

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
"""Seconds. A route under load answers in the lower half; the upper one is where callers give up."""

METHODS = frozenset({"GET", "POST", "PATCH", "PUT", "DELETE", "HEAD", "OPTIONS"})
NO_ROUTE = "none"
"""Where a request was for nothing that is here, or was refused before that was known."""
NO_STATUS = "none"
"""Where the caller was gone before there was an answer."""


class Metrics:
    """The counters of a process, with a registry of their own: an application that is made twice counts apart."""

    def __init__(self) -> None:
        self.figures = Figures()
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._requests = Counter(
            "tenure_api_requests",
            "Requests, by template of the route, method and class of the status.",
            ["route", "method", "status"],
            registry=self._registry,
        )
        self._seconds = Histogram(
            "tenure_api_request_seconds",
            "From the head of a request to the end of its answer.",
            ["route", "method"],
            buckets=BUCKETS,
            registry=self._registry,
        )
        self._held_up = Counter(
            "tenure_api_held_up",
            "Requests that were answered 429, for their caller had failed too often.",
            registry=self._registry,
        )

    def count(self, route: str, method: str, status: int | None, seconds: float) -> None:
        """Count a request that is over."""
        known = method if method in METHODS else "other"
        self._requests.labels(route, known, NO_STATUS if status is None else f"{status // 100}xx").inc()
        self._seconds.labels(route, known).observe(seconds)
        if status == 429:
            self._held_up.inc()

    async def text(self, parts: Parts) -> bytes:
        """All of it, in the text format of Prometheus."""
        families = await self.figures.read(parts)
        return generate_latest(_All(self._registry, [*_connections(parts), *families]))


class _All(Collector):
    """What is counted here, and what was read just now."""

    def __init__(self, registry: CollectorRegistry, families: Sequence[Metric]) -> None:
        self._registry, self._families = registry, families

    def collect(self) -> Iterable[Metric]:
        yield from self._registry.collect()
        yield from self._families


def _connections(parts: Parts) -> list[Metric]:
    pool, turns = parts.database.engine.pool, parts.turns
    in_use = pool.checkedout() if isinstance(pool, QueuePool) else 0
    return [
        GaugeMetricFamily(
            "tenure_api_pool_size", "Connections this process may have to the database.", turns.total_tokens
        ),
        GaugeMetricFamily("tenure_api_pool_in_use", "Connections that are in use.", in_use),
        GaugeMetricFamily(
            "tenure_api_turns_waiting", "Requests that wait for a connection.", turns.statistics().tasks_waiting
        ),
    ]
