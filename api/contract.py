"""The contract of the API, `contracts/openapi.v1.json`: generated from the routes, so that the two cannot part.

python -m api.contract            writes the file
python -m api.contract --check    exit status 1 unless the file is what would be written
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from api.app import create_app
from api.settings import ApiSettings
from engine.core.generated import write_or_check

CONTRACT = Path(__file__).parent / "contracts" / "openapi.v1.json"


def text() -> str:
    """The contract as it stands in its file."""
    return json.dumps(create_app(settings=ApiSettings()).openapi(), indent=2, ensure_ascii=False) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line. Returns the exit status."""
    return write_or_check("api.contract", CONTRACT, text, arguments)


if __name__ == "__main__":
    raise SystemExit(main())
