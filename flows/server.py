"""The Prefect server: waiting for it, and asking it without holding anybody up."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.settings import PREFECT_API_URL, PREFECT_CLIENT_MAX_RETRIES, temporary_settings

POOL = "tenure"
"""The work pool of all our deployments."""
FLOWS = ("advance-runs", "fire-schedules", "clean-history")


@contextmanager
def client() -> Iterator[SyncPrefectClient]:
    """A client of the server named by PREFECT_API_URL that does not try again: who asks looks again soon, and must not be
    held up for a minute meanwhile."""
    with temporary_settings({PREFECT_CLIENT_MAX_RETRIES: 0}), get_client(sync_client=True) as opened:
        yield opened


def server_answers() -> bool:
    """Whether the server answers now."""
    try:
        return httpx.get(f"{PREFECT_API_URL.value()}/health", timeout=2, trust_env=False).is_success
    except httpx.HTTPError:
        return False


def wait_for_server(within: float) -> None:
    """Return once the server answers. Raises TimeoutError after `within` seconds."""
    deadline = time.monotonic() + within
    while not server_answers():
        if time.monotonic() > deadline:
            raise TimeoutError(f"no Prefect server answers at {PREFECT_API_URL.value()}")
        time.sleep(0.2)
