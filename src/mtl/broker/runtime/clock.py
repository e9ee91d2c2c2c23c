"""The clocks of the machine, read together."""

from __future__ import annotations

import time

from mtl.broker import actions as a

_SINCE_BOOT = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""A clock that also counts while the machine sleeps: on Linux CLOCK_BOOTTIME, on macOS the monotonic one."""


def clock() -> a.Now:
    """The time, for the core."""
    return a.Now(time.monotonic(), time.time_ns() // 1000, time.clock_gettime(_SINCE_BOOT))
