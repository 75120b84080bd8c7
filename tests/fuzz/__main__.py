"""The campaign as a command: `python -m tests.fuzz`, which is `make fuzz`.

FUZZ_CASES    how many cases there shall be at least (5,000)
FUZZ_SEED     repeats a campaign
"""

from __future__ import annotations

import logging
import os
import sys
import time
import uuid
from collections.abc import Iterator
from random import SystemRandom

from tests.database import shared_server
from tests.fuzz.campaign import Size, play
from tests.fuzz.tally import Tally

CASES = 5000

BY_THEMSELVES = 5000
"""Cases of the phases `examples` and `coverage`, about, however many are asked for."""
OPERATIONS, STEPS = 80, 3
"""About: operations there are, and steps that a scenario has."""


def main() -> int:
    """Play, tell, and return the exit status: 0 if nothing is wrong."""
    logging.basicConfig(level=logging.ERROR)
    seed = int(os.environ.get("FUZZ_SEED") or SystemRandom().randrange(2**31))
    cases = int(os.environ.get("FUZZ_CASES") or CASES)
    began = time.monotonic()

    def told(progress: str) -> None:
        sys.stdout.write(f"{time.monotonic() - began:5.0f} s  {progress}\n")
        sys.stdout.flush()

    told(f"FUZZ_SEED={seed} FUZZ_CASES={cases}")
    with shared_server(uuid.uuid4().hex) as server, server.fresh() as database:
        tally = play(database, seed, size_of(cases), told)
    wrong = [*tally.wrong(), *_shallow(tally, cases)]
    sys.stdout.write("\n".join(["", *tally.lines(), "", *wrong, ""]))
    told(f"{tally.cases} cases, {len(wrong)} things wrong. FUZZ_SEED={seed} repeats it")
    return 1 if wrong else 0


def size_of(cases: int) -> Size:
    """What leads to about so many cases, or a few more."""
    rest = max(cases - BY_THEMSELVES, 1200) * 11 // 10
    return Size(examples=max(rest // 2 // OPERATIONS, 8), scenarios=max(rest // 2 // STEPS, 100))


def _shallow(tally: Tally, cases: int) -> Iterator[str]:
    if tally.cases < cases:
        yield f"{tally.cases} cases are fewer than {cases}"
    yield from (f"{name} was never once done" for name in tally.never_done())


if __name__ == "__main__":
    raise SystemExit(main())
