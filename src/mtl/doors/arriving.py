"""Octets of large messages that arrive, until they are processed.

A peer may send the begin of a large message and no more, on many connections. So a connection with more than a small
part of a message reserves room for the largest one before it reads on, from a budget with a share for each owner of
peers. It reserves at once, not octet by octet: connections that wait for each other's room would all wait for ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from mtl.doors.budget import Budget
from mtl.doors.limits import DOOR_ARRIVING_FREE, DOOR_ARRIVING_STEP, DOOR_STALL_S
from mtl.doors.peer_messages import DoorRefusal
from mtl.wire.control import QUOTA


class Arriving:
    """The reservation of one connection. After `end` nothing is reserved any more."""

    def __init__(self, budget: Budget, owner: str) -> None:
        self._budget = budget
        self._owner = owner
        self._reserved = 0
        self._ended = False

    def try_reserve(self, octets: int) -> bool:
        """The connection has `octets` octets of messages that are not processed: reserve room for them and for the rest
        of them, or release it. False if the owner has its share.
        """
        more = self._missing(octets)
        if more > 0 and not self._budget.try_acquire(more, self._owner):
            return False
        if more < 0:
            self._budget.release(-more, self._owner)
        self._reserved += more
        return True

    async def reserve(self, octets: int) -> None:
        """As `try_reserve`, and waits while the owner has its share.

        Raises `DoorRefusal` if a connection that has a reservation already waits longer than DOOR_STALL_S for more.
        """
        if self.try_reserve(octets):
            return
        more = self._missing(octets)
        try:
            async with asyncio.timeout(DOOR_STALL_S if self._reserved else None):
                await self._budget.acquire(more, self._owner)
        except TimeoutError:
            raise DoorRefusal(
                403, QUOTA, "your connections have too many octets of incomplete messages"
            ) from None
        self._reserved += more
        if self._ended:
            self.end()

    def _missing(self, octets: int) -> int:
        is_large = octets > DOOR_ARRIVING_FREE and not self._ended
        steps = -(-octets // DOOR_ARRIVING_STEP) if is_large else 0
        return steps * DOOR_ARRIVING_STEP - self._reserved

    async def read(self, reading: Awaitable[bytes]) -> bytes:
        """The next octets of the peer. Raises `DoorRefusal` if a peer with a reservation sends none for
        DOOR_STALL_S.
        """
        stall = asyncio.timeout(DOOR_STALL_S if self._reserved else None)
        try:
            async with stall:
                return await reading
        except TimeoutError:  # the connection's own is an OSError of this name
            if not stall.expired():
                raise
            raise stalled() from None

    def end(self) -> None:
        """The connection has ended. Harmless when repeated."""
        self._ended = True
        self.try_reserve(0)


def stalled() -> DoorRefusal:
    """The error for a message that has stopped arriving."""
    return DoorRefusal(408, "incomplete", f"nothing of a begun message has arrived for {DOOR_STALL_S:g} s")
