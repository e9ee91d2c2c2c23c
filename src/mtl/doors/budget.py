"""Limit on octets that a door has in memory, in all and for each owner; a task that exceeds it waits."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import NamedTuple

from mtl.shares import Uses


class _Waiting(NamedTuple):
    owner: str
    octets: int
    turn: asyncio.Future[None]


class Budget:
    """`acquire` before use, `release` after it. First come, first served; an owner with its whole `share` (None: the
    `limit`) waits without delaying others. An amount above a bound waits until nothing is held.
    """

    def __init__(self, limit: int, share: int | None = None) -> None:
        self.limit = limit
        self.share = limit if share is None else share
        self._held = Uses()
        self._waiting: deque[_Waiting] = deque()

    @property
    def held(self) -> int:
        """The octets of all owners."""
        return self._held.used

    @property
    def waiting(self) -> int:
        """The number of tasks that wait for room."""
        return sum(not waiting.turn.done() for waiting in self._waiting)

    def is_owner_full(self, octets: int, owner: str) -> bool:
        """Whether the owner's share has no room for these octets."""
        return _exceeds(self._held.of(owner), octets, self.share)

    def try_acquire(self, octets: int, owner: str = "") -> bool:
        """Hold octets if there is room now and no task waits for it."""
        if self._waiting and any(waiting.owner == owner for waiting in self._waiting):
            return False
        if self.is_owner_full(octets, owner) or _exceeds(self.held, octets, self.limit):
            return False
        if any(not self.is_owner_full(waiting.octets, waiting.owner) for waiting in self._waiting):
            return False  # it waits for the total, and came first
        self._held.add(owner, octets)
        return True

    async def acquire(self, octets: int, owner: str = "") -> None:
        """Wait for room, then hold it."""
        if self.try_acquire(octets, owner):
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(owner, octets, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.release(octets, owner)  # granted, but its task was cancelled
            else:
                self._grant()
            raise

    def release(self, octets: int, owner: str = "") -> None:
        """Release octets that were taken."""
        self._held.remove(owner, octets)
        self._grant()

    def _grant(self) -> None:
        """Serve those who wait, in their order; those of full owners stay, and delay no other owner."""
        left: deque[_Waiting] = deque()
        full: set[str] = set()
        while self._waiting:
            waiting = self._waiting.popleft()
            if waiting.turn.done():
                continue  # cancelled
            if waiting.owner in full or self.is_owner_full(waiting.octets, waiting.owner):
                full.add(waiting.owner)
                left.append(waiting)
            elif _exceeds(self.held, waiting.octets, self.limit):
                left.append(waiting)
                break
            else:
                self._held.add(waiting.owner, waiting.octets)
                waiting.turn.set_result(None)
        self._waiting.extendleft(reversed(left))


def _exceeds(held: int, octets: int, bound: int) -> bool:
    return held > 0 and held + octets > bound
