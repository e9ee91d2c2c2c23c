"""Tests that are coroutines: each runs in an event loop of its own, and never longer than a while."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

_LONGEST_S = 180.0


def in_loop(test: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, R]:
    """The test as an ordinary function; its fixtures are found as before."""

    @wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        async def timed() -> R:
            async with asyncio.timeout(_LONGEST_S):
                return await test(*args, **kwargs)

        return asyncio.run(timed())

    return run


async def until(done: Callable[[], bool]) -> None:
    """Wait until `done` says so; the test's own time is the limit."""
    while not done():  # noqa: ASYNC110 what is waited for happens in another thread or process
        await asyncio.sleep(0.002)
