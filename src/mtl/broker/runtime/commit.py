"""Writes and syncs groups: in a few threads, or in the loop itself while no other client waits.

Handing a group to a thread and back wakes two cold threads, which costs an idle broker about as much as the sync. So
the loop writes a small group itself when nothing else is with the disk, nothing waits on the sockets, and the disk was
fast lately. A message that arrives meanwhile waits for that one sync, as it would for the next group.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from mtl import limits
from mtl.storage.api import Append, LogAction

_REMEMBERED = 0.9
"""Decay of the slowest duration: a disk that took 50 ms once counts as slow for the next 38 groups."""


class Start(Protocol):
    """Has a thread carry out an action; the result is reported to the loop."""

    def __call__(self, action: LogAction, perform: Callable[[LogAction], object]) -> None: ...


class Commits:
    """Carries out the actions on logs, except their creation. `quiet` says whether nothing waits on the sockets;
    `clock` is in monotonic seconds.
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
        """Duration of the slowest commit, in seconds; it counts for less with every further one."""

    def carry_out(self, actions: Sequence[LogAction]) -> list[tuple[int, object]]:
        """Begin all actions; returns the results of those that were carried out at once."""
        if len(actions) == 1 and not self._started and self._small(actions[0]) and self._quiet():
            return [(actions[0].id, self._timed(actions[0]))]
        for action in actions:
            self._started.add(action.id)
            self._start(action, self._timed)
        return []

    def finished(self, number: int) -> None:
        """An action has ended, in the loop or in a thread."""
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
