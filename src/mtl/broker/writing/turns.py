"""Limits the number of logs with a group on its way to the disk; the others wait in the order of their requests.

Contents that wait for their log's turn do not form a group yet, so the group grows: a hundred logs under load have a
few large syncs instead of one per content. A single log is not delayed (`mtl.broker.writing.intake`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable


class Turns:
    """At most `most` turns at a time."""

    def __init__(self, most: int) -> None:
        self._free = most
        self._line: dict[Hashable, Callable[[], bool]] = {}

    def ask(self, key: Hashable, begin: Callable[[], bool]) -> None:
        """Call `begin` when a turn is free, now or later. It returns False if `key` no longer needs the turn, and the
        next in line gets it. Asking again meanwhile changes nothing.
        """
        self._line.setdefault(key, begin)
        self._go_on()

    def done(self) -> None:
        """A turn has ended."""
        self._free += 1
        self._go_on()

    def _go_on(self) -> None:
        while self._free and self._line:
            begin = self._line.pop(next(iter(self._line)))
            self._free -= 1
            if not begin():
                self._free += 1
