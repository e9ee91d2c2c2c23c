"""Where groups are written and synced: by a few threads, or by the loop itself while nobody else wants it.

Handing a group to a thread and back wakes two cold threads, which costs an idle broker about as much as its sync. So
the loop writes a small group itself when nothing else is with the disk, nothing waits on the sockets, and the disk was
quick lately: whoever comes meanwhile waits for that one sync, as he would for the next group.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from mtl import limits
from mtl.storage.api import Append, LogAction

_REMEMBERED = 0.9
"""A disk that took 50 ms once counts as slow for the next 38 groups: it is likely to do so again."""


class Start(Protocol):
    """Has a thread carry out an action; the loop is told of the result."""

    def __call__(self, action: LogAction, perform: Callable[[LogAction], object]) -> None: ...


class Commits:
    """What is done to logs, but for making them. `quiet` says whether nothing waits on the sockets; `clock` is in
    monotonic seconds.
    """

    def __init__(
        self,
        perform: Callable[[LogAction], object],
        start: Start,
        quiet: Callable[[], bool],
        clock: Callable[[], float],
    ) -> None:
        self._perform = perform
        self._start = start
        self._quiet = quiet
        self._clock = clock
        self._started: set[int] = set()
        self._slowest_s = limits.LOOP_COMMIT_S
        """How long the slowest took; with every further one it counts for less."""

    def carry_out(self, actions: Sequence[LogAction]) -> list[tuple[int, object]]:
        """Begin all of these; the results of those that were carried out at once."""
        if len(actions) == 1 and not self._started and self._small(actions[0]) and self._quiet():
            return [(actions[0].id, self._timed(actions[0]))]
        for action in actions:
            self._started.add(action.id)
            self._start(action, self._timed)
        return []

    def finished(self, number: int) -> None:
        """The loop has heard of an action's end, whoever carried it out."""
        self._started.discard(number)

    def _small(self, action: LogAction) -> bool:
        if not isinstance(action, Append) or self._slowest_s >= limits.LOOP_COMMIT_S:
            return False
        return sum(draft.size for draft in action.drafts) <= limits.LOOP_COMMIT

    def _timed(self, action: LogAction) -> object:
        began = self._clock()
        result = self._perform(action)
        self._slowest_s = max(self._clock() - began, self._slowest_s * _REMEMBERED)
        return result
