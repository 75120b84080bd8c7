"""A worker that lost its lease commits nothing, and lives on (scenes.py)."""

from __future__ import annotations

import pytest

from tests.crash.ahead import Ahead
from tests.crash.scenes import SCENES

pytestmark = pytest.mark.timeout(300)


@pytest.mark.parametrize("scene", SCENES)
def test_a_worker_that_lost_its_lease_commits_nothing_and_lives_on(scene: str, scenes: Ahead[str, None]) -> None:
    scenes(scene)
