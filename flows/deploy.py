"""`python -m flows.deploy`: everything of ours that a Prefect server must have. May be run again at any time.

the work pool, the deployments of prefect.yaml, the automations

The host sees to it that each shift is then run at once (flows/vigil.py).
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import prefect.cli.deploy  # noqa: F401  what the command imports at its start, while the server is still starting
from prefect.cli import app as prefect_command
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.exceptions import ObjectAlreadyExists, PrefectHTTPStatusError
from prefect.workers.process import ProcessWorker

from flows.automations import create_absent
from flows.server import POOL, wait_for_server

ROOT = Path(__file__).resolve().parent.parent
SERVER_WITHIN = 180.0


def create_pool(prefect: SyncPrefectClient) -> None:
    """The work pool, unless it exists."""
    pool = WorkPoolCreate(name=POOL, type="process", base_job_template=ProcessWorker.get_default_base_job_template())
    try:
        prefect.create_work_pool(pool)
    except ObjectAlreadyExists:
        return


def deploy_all() -> None:
    """The deployments of prefect.yaml, as `prefect --no-prompt deploy --all` makes them.

    In this process: another would import Prefect once more, for some seconds. Raises RuntimeError when it fails.
    """
    os.chdir(ROOT)
    with patched_arguments("prefect", "--no-prompt", "deploy", "--all"):
        try:
            prefect_command()
        except SystemExit as end:
            if end.code:
                raise RuntimeError(f"prefect deploy ended with status {end.code}") from None


@contextmanager
def patched_arguments(*arguments: str) -> Iterator[None]:
    """Meanwhile, another command line for a command that takes it from nowhere else."""
    before, sys.argv = sys.argv, list(arguments)
    try:
        yield
    finally:
        sys.argv = before


def _patiently(do: Callable[[], object]) -> None:
    """A server that has just started, on a busy machine, answers 503 now and then: all of this may be done again."""
    for pause in (1, 2, 4, 8):
        try:
            do()
            return
        except (RuntimeError, PrefectHTTPStatusError):
            time.sleep(pause)
    do()


def main() -> None:
    """Wait for the server, and bring it up to date."""
    wait_for_server(SERVER_WITHIN)
    with get_client(sync_client=True) as prefect:
        create_pool(prefect)
        _patiently(deploy_all)
        _patiently(lambda: create_absent(prefect))


if __name__ == "__main__":
    main()
