"""A file with a key in it: made whole and private, or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def create_key_file(path: Path, content: bytes) -> None:
    """Write `content` to `path`, mode 0600. Of two at once the first wins, and both read what it wrote. On the disk when this
    returns: a key lost with the power would take with it all that was made under it."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor, draft = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # mode 0600
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(draft, path)  # unlike a rename, refuses to replace
        except FileExistsError:
            return
    finally:
        os.unlink(draft)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
