"""Whose group is with the disk: of a few logs at a time, in the order in which they asked.

What waits for its turn is not a group yet, and grows: a hundred logs that are written to at once have a few large syncs
instead of one for every content. With one log it is group commit as ever (`mtl.broker.writing.intake`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable


class Turns:
    """At most `most` at a time."""

    def __init__(self, most: int) -> None:
        self._free = most
        self._line: dict[Hashable, Callable[[], bool]] = {}

    def ask(self, who: Hashable, begin: Callable[[], bool]) -> None:
        """Call `begin` when it is their turn, now or later; whether it took the turn is what it returns. Asking again
        meanwhile changes nothing.
        """
        self._line.setdefault(who, begin)
        self._go_on()

    def done(self) -> None:
        """Somebody's turn is over."""
        self._free += 1
        self._go_on()

    def _go_on(self) -> None:
        while self._free and self._line:
            begin = self._line.pop(next(iter(self._line)))
            self._free -= 1
            if not begin():
                self._free += 1
