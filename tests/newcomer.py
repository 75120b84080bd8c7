"""Somebody new who follows a page of docs/ line by line: one shell, over the real API and a real worker.

Two things of the page are not as on their machine: the ports, and `tenure`, which the shell asks the test's own
process for. There the product's command line runs, on the database and with the issuer's key of the test.
"""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from urllib.parse import urlsplit

from pytest_httpserver import HTTPServer
from werkzeug import Request, Response

from cli.demo.receivers import MailReceiver, mail_receiver
from cli.main import app
from db.session import Database
from engine.core.settings import MailSettings
from tests.calling import an_api
from tests.driver import working
from tests.endpoints import nobody_s_url
from tests.pages import Block, Step

API = "127.0.0.1:8000"
ENDPOINT = "9911"
"""Where the pages say that the API is, and the port of an endpoint of the reader's own."""

MARK = "\x1e"

_HEAD = f"""\
set -euo pipefail
exec 2>&1
asked() {{ printf '%s\\n' "${{@:2}}" | curl -sSf --data-binary @- "$TEST/$1"; }}
tenure() {{ asked tenure "$@"; }}
at_line() {{ printf '{MARK}%s\\n' "$1"; }}
"""
"""`asked` is the way to the test; the address there is in TEST."""


@dataclass(frozen=True)
class Newcomer:
    """Follows pages."""

    places: Mapping[str, str]
    """Where things are that the pages have elsewhere."""
    test: str
    mail: MailReceiver

    def follow(self, steps: list[Step], *, within: float = 60.0) -> tuple[dict[int, str], int]:
        """Type a page's lines until the end, or until some fail. Returns what each block brought, by its line, and the
        status of the last."""
        script = _HEAD + "".join(map(self._typed, steps))
        bin_folder = str(Path(sys.executable).parent)
        environment = {
            "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}",
            "TEST": self.test,
            "LC_ALL": "C.UTF-8",
        }
        with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as said:
            shell = subprocess.Popen(
                ["bash", "-c", script],
                cwd=folder,
                env=environment,
                stdout=said,
                stdin=subprocess.DEVNULL,
                process_group=0,
            )
            try:
                status = shell.wait(within)
            except subprocess.TimeoutExpired:
                status = -1
            finally:
                _end_group(shell)
            said.seek(0)
            return _by_line(said.read().decode()), status

    def _typed(self, step: Step) -> str:
        meanwhile = "".join(f"asked meanwhile {quote(what)}\n" for what in step.meanwhile)
        typed = step.shell.text
        for place, actual in self.places.items():
            typed = typed.replace(place, actual)
        return f"{meanwhile}at_line {step.shell.line}\n{typed}\n"


def arrived(mail: MailReceiver) -> list[Block]:
    """The messages that came, as a page would show them."""
    headers = ("From", "To", "Subject")
    return [
        Block("mail", "\n".join([*(f"{name}: {message[name]}" for name in headers), "", message.get_content()]), 0)
        for _, message in mail.messages
    ]


@contextmanager
def a_newcomer(
    database: Database, server: HTTPServer, meanwhile: Mapping[str, Callable[[Database], None]]
) -> Iterator[Newcomer]:
    """The stack, and somebody in front of it. The environment must name the database and the issuer's key to `tenure`."""

    def tenure(request: Request) -> Response:
        said = io.StringIO()
        with redirect_stdout(said):
            app(request.get_data(as_text=True).splitlines(), standalone_mode=False)
        return Response(said.getvalue())

    def happen(request: Request) -> Response:
        meanwhile[request.get_data(as_text=True).strip()](database)
        return Response("")

    server.expect_request("/tenure").respond_with_handler(tenure)
    server.expect_request("/meanwhile").respond_with_handler(happen)
    with mail_receiver() as mail, an_api(database) as api, _at_work(database, mail):
        places = {API: api.client.base_url.netloc.decode(), ENDPOINT: str(urlsplit(nobody_s_url()).port)}
        yield Newcomer(places, server.url_for("").rstrip("/"), mail)


@contextmanager
def _at_work(database: Database, mail: MailReceiver) -> Iterator[None]:
    """A worker in a thread of its own."""
    stop = threading.Event()
    with working(database, mail=MailSettings(host="127.0.0.1", port=mail.port)) as worker:

        def work() -> None:
            while not stop.is_set():
                worker.run_pass()
                worker.wait(stop)

        thread = threading.Thread(target=work, name="worker")
        thread.start()
        try:
            yield
        finally:
            stop.set()
            worker.wake()
            thread.join()


def _by_line(said: str) -> dict[int, str]:
    parts = (part.partition("\n") for part in said.split(MARK)[1:])
    return {int(line): rest for line, _, rest in parts}


def _end_group(shell: subprocess.Popen[bytes]) -> None:
    """What the page left running ends with it."""
    with suppress(ProcessLookupError):
        os.killpg(shell.pid, signal.SIGKILL)
    shell.wait()
