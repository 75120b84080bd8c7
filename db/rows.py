"""The rows that statements return. Their columns have no types of their own here: the callers make facts of them at once."""

from __future__ import annotations

from typing import Any, TypeAlias

from sqlalchemy import Row

AnyRow: TypeAlias = Row[*tuple[Any, ...]]
