"""How the API is served: `python -m api.server --host 127.0.0.1 --port 8000`.

uvicorn, with connections that end (connections.py). An application served by uvicorn's own command would lack them.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import uvicorn
from fastapi import FastAPI

from api.app import create_app
from api.connections import BoundedConnection
from api.edge import HEAD_LIMIT
from api.settings import ApiSettings

GRACE = 5
"""Seconds that requests under way have to end when the server is stopped."""
BACKLOG = 128
"""Connections that are taken on at once, before any is looked at: each is an open file."""


def served(app: FastAPI, settings: ApiSettings, host: str, port: int, **rest: Any) -> uvicorn.Server:
    """A server of this application; `run` it. `rest` is for uvicorn."""
    config: dict[str, Any] = {
        "http": partial(BoundedConnection, settings=settings),
        "h11_max_incomplete_event_size": HEAD_LIMIT,
        "ws": "none",
        "loop": "asyncio",
        "lifespan": "on",
        "backlog": BACKLOG,
        "server_header": False,
        "timeout_graceful_shutdown": GRACE,
    }
    return uvicorn.Server(uvicorn.Config(app, host, port, **{**config, **rest}))


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line. Returns when it is stopped; exit status 3 when it cannot start."""
    parser = argparse.ArgumentParser(prog="python -m api.server", description="Serve the API.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    given = parser.parse_args(arguments)
    settings = ApiSettings()
    with suppress(KeyboardInterrupt):
        served(create_app(settings=settings), settings, given.host, given.port).run()


if __name__ == "__main__":
    main()
