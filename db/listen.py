"""Waiting for a NOTIFY on a connection of its own. A hint that there is work, never the only way to learn of it."""

from __future__ import annotations

import logging
import os
import select
import threading
import time
from contextlib import suppress
from typing import Any, Self

import psycopg
from psycopg import sql

log = logging.getLogger(__name__)

RECONNECT_EVERY = 1.0
"""Seconds between two attempts to connect again."""


class Listener:
    """One channel, one thread that waits; any other thread, or a signal's function, may wake it.

    Create it before the first look at the queue: what is notified from then on is not missed. While the database is
    away `wait` goes on returning False at its time; it says True once it is back, because something may have been
    notified meanwhile."""

    def __init__(self, channel: str, conninfo: dict[str, Any]) -> None:
        """Connects and listens. Raises psycopg.OperationalError when that fails: only later outages are waited out."""
        self._channel = channel
        self._conninfo = conninfo
        self._next_attempt = 0.0
        self._connection: psycopg.Connection[Any] | None = self._connect()
        self._waking = threading.Lock()
        self._wake_reader, self._wake_writer = os.pipe()
        os.set_blocking(self._wake_reader, False)
        os.set_blocking(self._wake_writer, False)

    def wait(self, timeout_seconds: float) -> bool:
        """Wait until notified (True; all that came are taken together), woken, or out of time (both False).

        Never raises for a database that is away. An attempt to reconnect can exceed the time by `connect_timeout`
        when the server's machine does not answer at all."""
        deadline = time.monotonic() + timeout_seconds
        while True:
            if self._connection is None and self._reconnected():
                return True
            if self._connection is not None and self._drained():
                return True
            left = deadline - time.monotonic()
            if self._connection is None:
                left = min(left, max(0.0, self._next_attempt - time.monotonic()))
            if self._woken_within(max(0.0, left)):
                return False
            if time.monotonic() >= deadline:
                return self._connection is not None and self._drained()

    def wake(self) -> None:
        """End the wait of the other thread, or its next one. May be called from anywhere, any number of times."""
        with self._waking, suppress(BlockingIOError):  # full: it is woken already
            if self._wake_writer >= 0:  # closed: nobody waits, and the number may be somebody else's by now
                os.write(self._wake_writer, b"x")

    def close(self) -> None:
        """Give the connection back. Call it from the thread that waits, after its last wait."""
        self._disconnect()
        with self._waking:
            for descriptor in (self._wake_reader, self._wake_writer):
                if descriptor >= 0:
                    os.close(descriptor)
            self._wake_reader = self._wake_writer = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _connect(self) -> psycopg.Connection[Any]:
        connection = psycopg.connect(**self._conninfo, autocommit=True)
        connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(self._channel)))
        return connection

    def _reconnected(self) -> bool:
        if time.monotonic() < self._next_attempt:
            return False
        try:
            self._connection = self._connect()
        except psycopg.Error:
            self._next_attempt = time.monotonic() + RECONNECT_EVERY
            return False
        log.info("listening on %s again", self._channel)
        return True

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _drained(self) -> bool:
        """Take everything that has arrived; whether there was a notification. A dead connection is dropped here."""
        assert self._connection is not None
        notified = False
        try:
            self._connection.pgconn.consume_input()
            while self._connection.pgconn.notifies() is not None:
                notified = True
        except psycopg.Error:
            log.warning("the connection that listens on %s is lost", self._channel)
            self._disconnect()
        return notified

    def _woken_within(self, seconds: float) -> bool:
        """Sleep until the connection has something to read, somebody wakes us, or the time is up. True when woken."""
        poll = select.poll()
        poll.register(self._wake_reader, select.POLLIN)
        if self._connection is not None:
            poll.register(self._connection.fileno(), select.POLLIN)
        ready = {descriptor for descriptor, _ in poll.poll(int(seconds * 1000) + (seconds > 0))}
        if self._wake_reader not in ready:
            return False
        with suppress(BlockingIOError):
            while os.read(self._wake_reader, 1024):
                pass
        return True
