"""The short form of the campaign (README.md). The long one is `make fuzz`."""

from __future__ import annotations

import pytest

from db.session import Database
from tests.fuzz.campaign import Size, play

SEED = 3


@pytest.mark.timeout(300)  # most of it is work of the processor
def test_whatever_is_sent_is_answered_as_the_document_says(database: Database) -> None:
    tally = play(database, SEED, Size(examples=2, scenarios=3, whole=False))
    assert not list(tally.wrong()), "\n".join([*tally.lines(), *tally.wrong()])
    assert tally.cases > 300
    assert len(tally.never_done()) < 10, "most operations are done, not only refused"
