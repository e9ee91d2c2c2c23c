from __future__ import annotations

import time

from mtl.broker.runtime.server import clock


def test_each_reading_lies_between_those_around_it() -> None:
    wall, mono = time.time(), time.monotonic()
    first, second = clock(), clock()
    assert mono <= first.mono <= second.mono <= time.monotonic()
    assert wall - 1 < first.wall_us / 1e6 < wall + 60
    assert 0 < first.since_boot <= second.since_boot
