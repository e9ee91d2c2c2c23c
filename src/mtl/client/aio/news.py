"""Lets a task wait for news from the IO thread."""

from __future__ import annotations

import asyncio

from mtl.client.aio.bell import Bell


class News:
    """The IO thread calls `ring`. One task at a time awaits `come`, and looks for the news after it."""

    __slots__ = ("_expected", "ring")

    def __init__(self) -> None:
        """For the running event loop."""
        self._expected: asyncio.Future[None] | None = None
        self.ring = Bell(self._heard).ring

    async def come(self, patience: float | None) -> bool:
        """Wait for a ring: True; False after `patience` seconds without one (None: no limit)."""
        self._expected = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(patience):
                await self._expected
        except TimeoutError:
            return False
        finally:
            self._expected = None
        return True

    def _heard(self) -> None:
        if self._expected is not None and not self._expected.done():
            self._expected.set_result(None)
