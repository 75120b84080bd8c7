"""A TCP proxy in front of PostgreSQL that loses answers to COMMIT: whoever asked learns nothing, and must not guess.

Of every so many COMMITs one is lost: in turn after the server has done it (its answer is thrown away) and before the server
has heard of it. The connection is cut in both cases.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

COMMIT = b"Q\x00\x00\x00\x0bCOMMIT\x00"
"""A COMMIT on the wire (simple query; psycopg sends it so)."""


@dataclass
class LossyProxy:
    """One that listens on a port of the loopback."""

    upstream: tuple[str, int]
    every: int
    port: int = 0
    commits: int = 0
    """COMMITs that have come by."""
    done_unheard: int = 0
    """Lost after the server had done them."""
    never_arrived: int = 0
    """Lost before the server had heard of them."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def lost(self) -> int:
        """COMMITs whose answer never came."""
        return self.done_unheard + self.never_arrived

    def serve(self, client: socket.socket) -> None:
        """One connection, until either side ends it or an answer is lost."""
        server = socket.create_connection(self.upstream)
        cut = threading.Event()
        back = threading.Thread(target=self._answers, args=(server, client, cut), daemon=True)
        back.start()
        with suppress(OSError):
            while data := client.recv(65536):
                fate = self._fate() if COMMIT in data else "passes"
                if fate == "never arrives":
                    break
                if fate == "done unheard":
                    cut.set()
                server.sendall(data)
                if fate == "done unheard":
                    back.join(timeout=10)
                    break
        for side in (server, client):
            with suppress(OSError):
                side.shutdown(socket.SHUT_RDWR)
        back.join(timeout=10)
        client.close()
        server.close()

    def _fate(self) -> str:
        with self._lock:
            self.commits += 1
            if self.commits % self.every:
                return "passes"
            if self.lost % 2:
                self.never_arrived += 1
                return "never arrives"
            self.done_unheard += 1
            return "done unheard"

    def _answers(self, server: socket.socket, client: socket.socket, cut: threading.Event) -> None:
        with suppress(OSError):
            while data := server.recv(65536):
                if cut.is_set():
                    return  # the server has answered the COMMIT; nobody will know
                client.sendall(data)
            client.shutdown(socket.SHUT_RDWR)


@contextmanager
def a_lossy_proxy(port: int, *, every: int) -> Iterator[LossyProxy]:
    """A proxy before the server on that port, losing one COMMIT of `every`."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        proxy = LossyProxy(("127.0.0.1", port), every, listener.getsockname()[1])

        def accept() -> None:
            with suppress(OSError):
                while True:
                    client, _ = listener.accept()
                    threading.Thread(target=proxy.serve, args=(client,), name="proxy", daemon=True).start()

        threading.Thread(target=accept, name="proxy", daemon=True).start()
        try:
            yield proxy
        finally:
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
