"""python -m tests.crash.restarts [MEGABYTES...]: the time until a broker serves again that a supervisor starts after an
abort, by the size of its log. The supervisor is that of conf/mtl-broker.service: it waits RestartSec.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path

from mtl.testing import broker
from tests.support.aborts import fill, served_after_an_abort

RESTART_S = 0.1
"""RestartSec of the unit."""

ROUNDS = 7


def main() -> None:
    """Print one line for each size."""
    for megabytes in map(int, sys.argv[1:] or ["0", "100", "2000"]):
        with tempfile.TemporaryDirectory() as place, broker(Path(place) / "data") as running:
            fill(running, megabytes * 1_000_000)
            seconds = [served_after_an_abort(running, RESTART_S) for _ in range(ROUNDS)]
        print(
            f"log of {megabytes:,} MB: served after {statistics.median(seconds):.2f} s "
            f"({min(seconds):.2f} to {max(seconds):.2f} s of {ROUNDS} aborts)",
            flush=True,
        )


if __name__ == "__main__":
    main()
