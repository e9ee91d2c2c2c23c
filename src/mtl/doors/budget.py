"""Limit on a door's unconfirmed octets; a task that exceeds it waits."""

from __future__ import annotations

import asyncio
from collections import deque


class Budget:
    """`acquire` before use, `release` after it. First come, first served; an amount above the limit waits until nothing
    is held.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def acquire(self, octets: int) -> None:
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
                self.release(octets)  # granted, but its task was cancelled
            else:
                self._grant()
            raise

    def release(self, octets: int) -> None:
        """Release octets that were taken."""
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
