"""What a door has taken in and the broker has not confirmed: so many octets, and whoever brings more waits."""

from __future__ import annotations

import asyncio
from collections import deque


class Budget:
    """`take` before, `give` after. In the order of asking; a single amount above the limit waits until it is alone."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def take(self, octets: int) -> None:
        """Wait for room, then hold it."""
        if not self._waiting and self._fits(octets):
            self.held += octets
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((octets, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.give(octets)  # it was granted, and nobody is there to use it
            else:
                self._grant()
            raise

    def give(self, octets: int) -> None:
        """Let go of what was taken."""
        self.held -= octets
        self._grant()

    def _grant(self) -> None:
        while self._waiting:
            octets, turn = self._waiting[0]
            if not turn.done():
                if not self._fits(octets):
                    return
                self.held += octets
                turn.set_result(None)
            self._waiting.popleft()

    def _fits(self, octets: int) -> bool:
        return not self.held or self.held + octets <= self.limit
