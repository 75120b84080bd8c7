"""The parts of a stack: what is run, with which settings, where it is, and whether it answers."""

from __future__ import annotations

import os
import socket
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from pydantic import ValidationError

from api.settings import ApiSettings
from engine.core.errors import TenureError
from engine.core.settings import EngineSettings

ROOT = Path(__file__).resolve().parent.parent
"""The checkout: where prefect.yaml is, and where every process works."""

PARTS = {
    "prefect": "Prefect server",
    "deploy": "deployments",
    "api": "API",
    "host": "workers",
}


class StackFailed(TenureError):
    """A part did not start. The message says which and quotes the end of its log."""


@dataclass(frozen=True)
class Addresses:
    """Where a running stack is."""

    api: str
    api_docs: str
    prefect_ui: str
    prefect_api: str
    data_dir: Path
    logs: Path


def require_settings(environment: Mapping[str, str]) -> None:
    """Raise StackFailed, naming the setting and its rule, for what every part would stumble over without a word."""
    before = {name: os.environ.get(name) for name in environment}
    os.environ.update(environment)
    try:
        EngineSettings()
        ApiSettings()
    except ValidationError as refused:
        faults = [
            f"{'.'.join(str(part) for part in fault['loc']) or 'settings'}: {fault['msg']}"
            for fault in refused.errors()
        ]
        raise StackFailed("A setting (TENURE_...) is not acceptable: " + "; ".join(faults)) from None
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def prefect_environment(data_dir: Path, api_url: str, port: int) -> dict[str, str]:
    """Prefect's settings for server, host and flow processes: everything in our folder, on loopback, calling nobody."""
    return {
        "PREFECT_HOME": str(data_dir / "prefect"),
        "PREFECT_API_URL": api_url,
        "PREFECT_SERVER_API_HOST": "127.0.0.1",
        "PREFECT_SERVER_API_PORT": str(port),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
        "DO_NOT_TRACK": "1",
        # A slot is late after a minute, not after 15 s: a slow machine must not have its shifts skipped.
        "PREFECT_SERVER_SERVICES_LATE_RUNS_AFTER_SECONDS": "60",
        # Its history is bounded: runs for three days, events for two, heartbeats (most of it) for one.
        "PREFECT_SERVER_SERVICES_DB_VACUUM_ENABLED": "events,flow_runs",
        "PREFECT_SERVER_SERVICES_DB_VACUUM_RETENTION_PERIOD": str(int(timedelta(days=3).total_seconds())),
        "PREFECT_SERVER_SERVICES_DB_VACUUM_EVENT_RETENTION_OVERRIDES": '{"prefect.flow-run.heartbeat": 86400}',
        "PREFECT_SERVER_EVENTS_RETENTION_PERIOD": "P2D",
        "PREFECT_WORKER_QUERY_SECONDS": "3",
        "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30",
        "PREFECT_LOGGING_EXTRA_LOGGERS": "engine",
        "PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW": "ignore",
        "PREFECT_LOGGING_COLORS": "false",
    }


def commands(api_port: int, prefect_port: int) -> dict[str, list[str]]:
    """What each part is, as arguments of `python -m`."""
    loopback = ["--host", "127.0.0.1", "--port"]
    return {
        "prefect": ["prefect", "--no-prompt", "server", "start", *loopback, str(prefect_port)],
        "deploy": ["flows.deploy"],
        "api": ["api.server", *loopback, str(api_port)],
        "host": ["flows.host"],
    }


def addresses(data_dir: Path, logs: Path, api_port: int, prefect_port: int) -> Addresses:
    """Where a stack on these ports is."""
    api, prefect = f"http://127.0.0.1:{api_port}", f"http://127.0.0.1:{prefect_port}"
    return Addresses(
        api=api, api_docs=f"{api}/docs", prefect_ui=prefect, prefect_api=f"{prefect}/api", data_dir=data_dir, logs=logs
    )


def free_ports(*wanted: int) -> list[int]:
    """The ports, each 0 replaced by a free one. Raises StackFailed when one is taken."""
    sockets = []
    try:
        for port in wanted:
            bound = socket.socket()
            sockets.append(bound)
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                bound.bind(("127.0.0.1", port))
            except OSError:
                raise StackFailed(f"Port {port} is taken: choose another, or 0 for any that is free.") from None
        return [bound.getsockname()[1] for bound in sockets]
    finally:
        for bound in sockets:
            bound.close()


_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def answers(url: str) -> bool:
    """Whether a server answers there, and says that it is well."""
    try:
        with _opener.open(url, timeout=2):
            return True
    except OSError:  # which an answer of 400 and more is as well
        return False
