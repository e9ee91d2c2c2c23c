"""Counts wrong passwords per address and in total, before the broker does: it counts all of a door's as one address."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from mtl.doors.limits import DOOR_FAILED_LOGINS, DOOR_FAILED_LOGINS_ALL, DOOR_FAILED_S

_ADDRESSES = 10_000
"""Maximum of addresses with a count, some 150 octets each; the oldest is removed first."""

_ALL = ""


class Guessing:
    """`clock` is in monotonic seconds. A count begins with its first failure and lasts `DOOR_FAILED_S`."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._failed: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def too_many(self, address: str) -> bool:
        """Whether this address, or all addresses together, reached the limit."""
        return self._count(address)[1] >= DOOR_FAILED_LOGINS or self._count(_ALL)[1] >= DOOR_FAILED_LOGINS_ALL

    def count(self, address: str) -> None:
        """Count one wrong password from this address."""
        for whose in (address, _ALL):
            since, failed = self._count(whose)
            self._failed[whose] = since, failed + 1
        self._failed.move_to_end(_ALL)
        if len(self._failed) > _ADDRESSES:
            self._failed.popitem(last=False)

    def _count(self, whose: str) -> tuple[float, int]:
        now = self._clock()
        since, failed = self._failed.get(whose, (now, 0))
        if since + DOOR_FAILED_S <= now:
            del self._failed[whose]
            return now, 0
        return since, failed
