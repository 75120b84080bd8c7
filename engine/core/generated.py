"""Files that are generated and kept: written anew, or compared with what would be written."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path


def write_or_check(module: str, path: Path, text: Callable[[], str], arguments: Sequence[str] | None = None) -> int:
    """The command line of a module that generates a file: it writes it, or with `--check` compares it. Returns the exit
    status: 1 when the file is not what would be written."""
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=f"Writes {path.name}.")
    parser.add_argument("--check", action="store_true", help="compare the file instead of writing it")
    if not parser.parse_args(arguments).check:
        path.write_text(text())
        return 0
    if path.exists() and path.read_text() == text():
        return 0
    sys.stderr.write(f"{path.name} is not what the code says: run python -m {module}\n")
    return 1
