"""Plays the demo and says whether all of it was so."""

from __future__ import annotations

import os
import shutil
import time
from contextlib import closing
from pathlib import Path

import httpx
from rich.console import Console

from cli.demo.receivers import endpoint, mail_receiver
from cli.demo.story import found, play
from cli.demo.verdict import Verdict, attempts_tables, judge
from cli.folder import LOCK, taken_folder
from cli.stack import Stack, StackFailed, StackSettings
from cli.up import Progress, print_addresses, stop_signals
from db.embedded import stop_server
from db.errors import DatabaseUnavailable
from engine.core.errors import TenureError

MARK = "demo.folder"
"""A file that says a folder is the demo's own, so that nothing else is ever emptied."""


def run_demo(data_dir: Path, console: Console, *, stay: bool = False) -> int:
    """Play both acts on a stack of its own in `data_dir`. Returns 0, or 1 if anything is not as it must be."""
    began_at = time.monotonic()
    for name in ("TENURE_DATABASE_URL", "TENURE_APP_DATABASE_URL"):  # whatever is exported is not for the demo to touch
        if os.environ.pop(name, None) is not None:
            console.print(f"{name} is left alone: the demo has a database of its own")
    try:
        data_dir = _emptied(data_dir.expanduser().resolve())
        with mail_receiver() as mail, endpoint() as receiver:
            environment = {
                "TENURE_SMTP_HOST": "127.0.0.1",
                "TENURE_SMTP_PORT": str(mail.port),
                "TENURE_SMTP_SENDER": "Acme accounts <accounts@acme.example>",
                "TENURE_ALLOW_PRIVATE_EGRESS": "true",
                "TENURE_API_LOCAL_ISSUER": "true",  # whatever provider is exported
            }
            console.print(f"[bold]Starting the whole stack[/bold] in {data_dir} (a fresh folder)")
            progress = Progress(console)
            stack = Stack(StackSettings(data_dir, api_port=0, prefect_port=0, environment=environment), progress.tell)
            verdict = Verdict(console)
            with stop_signals(stack), progress, stack:
                progress.pause()
                console.print("\n[bold]A company, its things, and a workflow[/bold]")
                with closing(found(stack, receiver, console)) as company:
                    console.print("\n[bold]Act one: Ada joins[/bold]")
                    good = play(company, "Ada", console)
                    receiver.status = 410
                    console.print("\n[bold]Act two: Bob joins, and the endpoint is gone (410)[/bold]")
                    bad = play(company, "Bob", console)
                    judge(verdict, stack.database, company, good, bad, mail, receiver)
                    console.print("\n[bold]Every attempt, read from the database[/bold]")
                    console.print(*attempts_tables(stack.database, company))
                not_so = f"[red]{verdict.failed} not so[/red]" if verdict.failed else "[green]all as it must be[/green]"
                console.print(f"{not_so}, {time.monotonic() - began_at:.0f} s in all")
                if stay:
                    print_addresses(stack, console)
                    while True:
                        time.sleep(3600)
    except KeyboardInterrupt:
        return 0 if stay else 1
    except (TenureError, DatabaseUnavailable, httpx.HTTPError) as failure:
        console.print(str(failure), style="red", markup=False, soft_wrap=True)
        return 1
    return 1 if verdict.failed else 0


def _emptied(data_dir: Path) -> Path:
    """A fresh folder. One with things in it is emptied only if an earlier demo made it and has ended. Raises StackFailed."""
    with taken_folder(data_dir):
        found = [path for path in data_dir.iterdir() if path.name != LOCK]
        if found and data_dir / MARK not in found:
            raise StackFailed(f"{data_dir} is not empty and not a demo's: name another folder.")
        if found:
            stop_server(data_dir)
        for path in found:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
        (data_dir / MARK).touch()
    return data_dir
