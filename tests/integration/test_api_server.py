"""The API as it is run: a process of its own, its configuration from the environment, a token from the command."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import httpx

from cli.token import issue
from db.session import Database
from tests.database import plain
from tests.factories import a_realm

ROOT = Path(__file__).parents[2]


@contextmanager
def running(database: Database, folder: Path) -> Iterator[str]:
    """`python -m api.server` on a free port. Stopped by SIGTERM at the end, with status 0 or its own."""
    assert database.app_url is not None
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TENURE_")}
    environment |= {
        "TENURE_APP_DATABASE_URL": plain(database.app_url),
        "TENURE_DATA_DIR": str(folder),
    }
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "api.server", "--port", str(port)]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, env=environment, cwd=ROOT, stdout=log, stderr=log)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(15)


def answering(base_url: str, folder: Path) -> httpx.Response:
    deadline = time.monotonic() + 60
    while True:
        try:
            return httpx.get(f"{base_url}/health/ready")
        except httpx.TransportError:
            assert time.monotonic() < deadline, (folder / "log").read_text()
            time.sleep(0.1)


def test_the_api_starts_from_its_environment_and_takes_the_tokens_of_the_command(
    database: Database, tmp_path: Path
) -> None:
    acme = a_realm(database)
    with running(database, tmp_path) as base_url:
        assert answering(base_url, tmp_path).status_code == 200
        token = issue(tmp_path, acme.id, acme.admin, "admin", timedelta(minutes=1))
        headers = {"Authorization": f"Bearer {token}"}
        url = f"{base_url}/api/v1/realms/{acme.id}/users"
        assert [user["id"] for user in httpx.get(url, headers=headers).json()["items"]] == [acme.admin]
        made = httpx.post(url, headers=headers, json={"email": "ada@example.org", "display_name": "Ada"})
        assert made.status_code == 201
        assert httpx.get(url).status_code == 401
        page = httpx.get(f"{base_url}/docs")
        assert page.status_code == 200
        for path in re.findall(r'(?:src|href)="([^"]+)"', page.text):
            assert path.startswith("/"), "the documentation needs nothing from elsewhere"
            assert httpx.get(base_url + path).status_code == 200
        assert httpx.get(f"{base_url}/openapi.json").json()["openapi"].startswith("3.1")
    log = (tmp_path / "log").read_text()
    assert "Traceback" not in log
    assert token not in log
