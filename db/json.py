"""JSON as it goes into the database: compact, UTF-8, and never a number that JSON does not have."""

from __future__ import annotations

import json
from typing import Any


def dumps(value: Any) -> str:
    """Compact JSON text. Raises ValueError for NaN and the infinities, which jsonb would refuse anyway."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
