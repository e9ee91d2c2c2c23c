"""What a task waits on while the IO thread has nothing for it."""

from __future__ import annotations

import asyncio

from mtl.client.aio.bell import Bell


class News:
    """`ring` is for the IO thread; `come` for one task at a time, which looks again after it."""

    __slots__ = ("_expected", "ring")

    def __init__(self) -> None:
        """Belongs to the running event loop."""
        self._expected: asyncio.Future[None] | None = None
        self.ring = Bell(self._heard).ring

    async def come(self, patience: float | None) -> bool:
        """True when it rang; False after `patience` seconds (None: no limit)."""
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
