"""A connection: uvicorn's own protocol, which waits for ever (STACK.md, trap 16), with an end to each of its waits.

h11 and not httptools: it is what refuses most of what is not HTTP, and it bounds the head of a request itself. A proxy that ends
TLS is assumed before us. Here is what comes before there is a request, and behind its answer; the time of a body is edge.py's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import h11
import uvicorn
from starlette.datastructures import MutableHeaders
from uvicorn.protocols.http.h11_impl import STATUS_PHRASES, H11Protocol
from uvicorn.server import ServerState

from api.edge import CLOSE, HEAD_LIMIT, answer, mark, new_request_id
from api.problems import Problem
from api.settings import ApiSettings


class BoundedConnection(H11Protocol):
    """Closed when a head is not whole in time, when what is answered is not taken in time, and when there are too many."""

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        settings: ApiSettings,
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._limit = settings.max_connections
        self._head = _Deadline(self.loop, settings.head_deadline, lambda: self._refuse(Problem("request_timeout")))
        self._sent = _Deadline(self.loop, settings.send_deadline, lambda: self.transport.abort())
        self._since = 0.0
        """When it was connected or last answered. What it has sent since does not count."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Anything at all in the buffer is an answer that is not taken, so that no rest of one is waited for untimed."""
        transport.set_write_buffer_limits(high=0)
        super().connection_made(transport)
        self._since = self.loop.time()
        self._head.begin()
        if len(self.connections) > self._limit:
            self._make_room()

    def data_received(self, data: bytes) -> None:
        """Whatever is no part of a request under way begins a head, and has its deadline: the rest of a body that was
        answered unread as well. Until the next byte uvicorn waits itself, for five seconds."""
        super().data_received(data)
        if self._is_answering:
            self._head.end()
        else:
            self._head.begin()

    def on_response_complete(self) -> None:
        """From here on it is the caller's turn again."""
        self._since = self.loop.time()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """No timer outlives its connection."""
        self._head.end()
        self._sent.end()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """From here on somebody does not read."""
        super().pause_writing()
        self._sent.begin()

    def resume_writing(self) -> None:
        """All is taken."""
        super().resume_writing()
        self._sent.end()

    def shutdown(self) -> None:
        """One that is closing already needs no telling."""
        if not self.transport.is_closing():
            super().shutdown()

    def send_400_response(self, msg: str) -> None:
        """What uvicorn says of what is not HTTP, as a problem."""
        is_large = len(self.conn.trailing_data[0]) > HEAD_LIMIT
        self._refuse(Problem("head_too_large" if is_large else "bad_request"))

    def _should_upgrade(self) -> bool:
        """To nothing: another protocol would wait for ever again."""
        return False

    @property
    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    @property
    def _is_waiting(self) -> bool:
        """Whether it is the caller's turn: to ask, to send the rest of a body, or to read."""
        return not self._is_answering or self.cycle.more_body or self.flow.write_paused

    def _make_room(self) -> None:
        """Close the one that has kept us waiting longest. There is none: all are at work, and this one is told so."""
        others = [each for each in self.connections if isinstance(each, BoundedConnection) and each is not self]
        waiting = [each for each in others if each._is_waiting]
        if not waiting:
            self._refuse(Problem("overloaded"))
            return
        longest = min(waiting, key=lambda each: each._since)
        self.connections.discard(longest)  # more may come before it is lost
        longest.transport.abort()

    def _refuse(self, problem: Problem) -> None:
        """Answer, unless another answer has begun, and close."""
        told = answer(problem)
        headers = MutableHeaders(raw=[*self.server_state.default_headers, *told.raw_headers])
        headers.update(CLOSE)
        mark(headers, new_request_id())
        start = h11.Response(status_code=told.status_code, headers=headers.raw, reason=STATUS_PHRASES[told.status_code])
        with suppress(h11.LocalProtocolError):
            for event in (start, h11.Data(data=bytes(told.body)), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        if self.cycle is not None:
            self.cycle.disconnected = True
        self.transport.close()


class _Deadline:
    """What happens `within` a time of its beginning, unless it is ended before."""

    def __init__(self, loop: asyncio.AbstractEventLoop, within: timedelta, then: Callable[[], object]) -> None:
        self._loop, self._within, self._then = loop, within.total_seconds(), then
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Nothing new if it runs already."""
        if self._timer is None:
            self._timer = self._loop.call_later(self._within, self._then)

    def end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
