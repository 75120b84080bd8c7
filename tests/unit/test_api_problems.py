"""Every way the engine fails has a code and a status, and no text of a kind that could be somebody's."""

from __future__ import annotations

import pytest

from api.problems import KINDS, code_of
from engine.core.errors import CATEGORIES


@pytest.mark.parametrize("category", sorted(CATEGORIES | {"http_503"}))
def test_every_category_has_a_code(category: str) -> None:
    assert code_of(category) in KINDS


@pytest.mark.parametrize(
    ("category", "status"),
    [
        ("not_found", 404),
        ("group_missing", 404),
        ("subject_missing", 404),
        ("forbidden", 403),
        ("grant_ceiling_exceeded", 403),
        ("approval_missing", 403),
        ("conflict", 409),
        ("not_a_member", 409),
        ("cancelled", 409),
        ("validation_failed", 422),
        ("invalid_destination", 422),
        ("secret_unavailable", 503),
        ("error", 500),
    ],
)
def test_a_category_is_answered_with_its_status(category: str, status: int) -> None:
    assert KINDS[code_of(category)].status == status
