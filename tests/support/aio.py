"""Tests that are coroutines: each runs in its own event loop, with a timeout."""

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
    """Wait until `done()` is true; the limit is the timeout of the test."""
    while not done():  # noqa: ASYNC110 the awaited event occurs in another thread or process
        await asyncio.sleep(0.002)
