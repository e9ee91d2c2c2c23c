"""Limits the number of logs with a group on its way to the disk; the others wait. The users that own them take turns,
so that the many logs of one user delay a log of another one by one group.

Contents that wait for their log's turn do not form a group yet, so the group grows: a hundred logs under load have a
few large syncs instead of one per content. A single log is not delayed (`mtl.broker.writing.intake`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

from mtl.broker.fair_queue import FairQueue


class Turns:
    """At most `most` turns at a time."""

    def __init__(self, most: int) -> None:
        self._free = most
        self._queue: FairQueue[Hashable] = FairQueue()
        self._begin: dict[Hashable, Callable[[], bool]] = {}

    def request(self, key: Hashable, begin: Callable[[], bool], share: str = "") -> None:
        """Call `begin` when a turn is free, now or later. It returns False if `key` no longer needs the turn, and the
        next in line gets it. Asking again meanwhile changes nothing. Shares take turns.
        """
        if key not in self._begin:
            self._begin[key] = begin
            self._queue.append(share, key)
        self._start_next()

    def release(self) -> None:
        """A turn has ended."""
        self._free += 1
        self._start_next()

    def _start_next(self) -> None:
        while self._free and self._queue:
            begin = self._begin.pop(self._queue.pop())
            self._free -= 1
            if not begin():
                self._free += 1
