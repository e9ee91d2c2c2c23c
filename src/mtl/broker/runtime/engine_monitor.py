"""Watches state that changes without a message to the loop: the users in the records, and the room for contents.

The storage engine is asked for both once a second, in the thread of the records. The results are queued for the loop.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from mtl.broker import limits as broker_limits
from mtl.broker.core import Broker
from mtl.broker.runtime.ports import Clock
from mtl.storage.api import Seen


class EngineMonitor:
    """`observe` is that of the engine, `run` calls a function in the thread of the records, `wake` wakes the loop."""

    def __init__(
        self,
        observe: Callable[[], Seen],
        run: Callable[[Callable[[], None]], object],
        wake: Callable[[], None],
    ) -> None:
        self._observe = observe
        self._run = run
        self._wake = wake
        self._states: deque[Seen] = deque()
        self._next_check = 0.0

    def start_check(self, now: float) -> None:
        """Start a check when it is due; `now` is in monotonic seconds."""
        if now >= self._next_check:
            self._next_check = now + broker_limits.ACCOUNTS_CHECK_S
            self._run(self._check)

    def check_soon(self) -> None:
        """Make the next check due at once; safe from any thread."""
        self._next_check = 0.0

    def deliver(self, broker: Broker, now: Clock) -> None:
        """Pass the queued results to the core."""
        while self._states:
            state = self._states.popleft()
            if state.free is not None:
                broker.room(state.free, state.total, now())
            if state.users is not None:
                broker.users(state.users, now())

    def _check(self) -> None:
        """Ask for both; runs in the thread."""
        state = self._observe()
        self._states.append(state)
        if state.users is not None:
            self._wake()
