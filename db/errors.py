"""The one exception of this room: the database cannot be had, and what the operator can do about it."""

from __future__ import annotations


class DatabaseUnavailable(RuntimeError):
    """No database to work with. The message is one sentence for the operator (a log's tail may follow it), never a
    secret."""
