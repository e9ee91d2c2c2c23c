"""Writes and syncs groups: in a few threads, or in the loop itself while no other client waits.

Handing a group to a thread and back wakes two cold threads, which costs an idle broker about as much as the sync. So
the loop writes a small group itself when nothing else is with the disk, nothing waits on the sockets, and the disk was
fast lately. A message that arrives meanwhile waits for that one sync, as it would for the next group.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mtl.broker import limits as broker_limits
from mtl.storage.api import Append, LogAction

_REMEMBERED = 0.9
"""Decay of the slowest duration: a disk that took 50 ms once counts as slow for the next 38 groups."""


class Commits:
    """Decides whether the loop performs an action on a log itself. `quiet`: whether nothing waits on the sockets."""

    def __init__(self, quiet: Callable[[], bool]) -> None:
        self._quiet = quiet
        self._started: set[int] = set()
        self._slowest_s = broker_limits.LOOP_COMMIT_S
        """Duration of the slowest commit, in seconds; it counts for less with every further one."""

    def are_for_the_loop(self, actions: Sequence[LogAction]) -> bool:
        """Whether the loop should perform these actions itself."""
        return len(actions) == 1 and not self._started and self._small(actions[0]) and self._quiet()

    def started(self, number: int) -> None:
        """A thread performs this action."""
        self._started.add(number)

    def finished(self, number: int) -> None:
        """An action has ended, in the loop or in a thread."""
        self._started.discard(number)

    def took(self, seconds: float) -> None:
        """Record the duration of an action, or of a batch of them; safe from any thread."""
        self._slowest_s = max(seconds, self._slowest_s * _REMEMBERED)

    def _small(self, action: LogAction) -> bool:
        if not isinstance(action, Append) or self._slowest_s >= broker_limits.LOOP_COMMIT_S:
            return False
        return sum(draft.size for draft in action.drafts) <= broker_limits.LOOP_COMMIT
