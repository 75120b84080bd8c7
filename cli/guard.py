"""`python -m cli.guard <data folder>`: outlives a stack that was killed, and stops the embedded PostgreSQL in its place.

Every other process of a stack is signalled by the kernel when the stack is gone (flows/lifeline.py); PostgreSQL is a daemon. The
guard waits for the end of its input, which the stack holds open for as long as it lives, and imports nothing until then.
"""

from __future__ import annotations

import sys
import time

HAND_BACK_WITHIN = 5.0
"""Seconds that the flow processes, signalled at the same moment, have to hand their leases back."""


def main() -> None:
    """Wait, and then stop the server, unless another stack has taken the folder."""
    sys.stdin.buffer.read()
    time.sleep(HAND_BACK_WITHIN)

    from contextlib import suppress
    from pathlib import Path

    from cli.folder import postgres_marker, taken_folder
    from cli.parts import StackFailed
    from db.embedded import stop_server

    data_dir = Path(sys.argv[1])
    with suppress(StackFailed), taken_folder(data_dir):
        if not postgres_marker(data_dir).exists():
            return  # it ran before the stack, and goes on
        stop_server(data_dir)
        postgres_marker(data_dir).unlink()


if __name__ == "__main__":
    main()
