"""The contract of the API, `contracts/openapi.v1.json`: generated from the routes, so that the two cannot part.

python -m api.contract            writes the file
python -m api.contract --check    exit status 1 unless the file is what would be written
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from api.app import create_app
from api.settings import ApiSettings

CONTRACT = Path(__file__).parent / "contracts" / "openapi.v1.json"


def text() -> str:
    """The contract as it stands in its file."""
    return json.dumps(create_app(settings=ApiSettings()).openapi(), indent=2, ensure_ascii=False) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m api.contract", description="Writes the contract.")
    parser.add_argument("--check", action="store_true", help="compare the file instead of writing it")
    if not parser.parse_args(arguments).check:
        CONTRACT.write_text(text())
        return 0
    if CONTRACT.exists() and CONTRACT.read_text() == text():
        return 0
    sys.stderr.write(f"{CONTRACT.name} is not what the routes say: run python -m api.contract\n")
    return 1


if __name__ == "__main__":
    raise SystemExit(main())
