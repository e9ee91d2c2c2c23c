"""Tests that are coroutines, in an event loop whose time passes only while nothing can run.

A pause costs no real time and ends at its exact second. Only for code without sockets, threads and processes.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

_LONGEST_S = 10_000.0


class _Selector(selectors.SelectSelector):
    """Does not wait: it adds the time to `now`."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready and timeout is not None:
            self.now += timeout
        return ready


class _VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._time = _Selector()
        super().__init__(self._time)

    def time(self) -> float:
        return self._time.now


def in_virtual_time(test: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, R]:
    """The test as an ordinary function; its fixtures are found as before. A test that waits for an event that never
    occurs fails at once.
    """

    @wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        async def timed() -> R:
            async with asyncio.timeout(_LONGEST_S):
                return await test(*args, **kwargs)

        with asyncio.Runner(loop_factory=_VirtualLoop) as runner:
            return runner.run(timed())

    return run


def now() -> float:
    """The loop's time in seconds."""
    return asyncio.get_running_loop().time()


async def idle() -> None:
    """Wait until no task can run without an event or a later time."""
    await asyncio.sleep(1e-6)
