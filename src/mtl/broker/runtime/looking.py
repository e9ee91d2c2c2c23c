"""Watches state that changes without a message to the loop: the users in the records, and the room on the disk.

The thread of the records checks both once a second, since that needs the disk. It queues the results for the loop.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Callable

from mtl import limits
from mtl.broker import actions as a
from mtl.broker.core import Broker
from mtl.errors import StorageError
from mtl.storage.records import UserRecord
from mtl.storage.sqlite import SqliteStore

log = logging.getLogger("mtl.broker")


class Looking:
    """`run` calls a function in the thread of the records, `wake` wakes the loop."""

    def __init__(
        self,
        store: SqliteStore,
        data: str,
        run: Callable[[Callable[[], None]], object],
        wake: Callable[[], None],
    ) -> None:
        self._store = store
        self._data = data
        self._run = run
        self._wake = wake
        self._found: deque[Callable[[Broker, a.Now], None]] = deque()
        self._due = 0.0

    def look(self, now: float) -> None:
        """Start a check when it is due; `now` is in monotonic seconds."""
        if now >= self._due:
            self._due = now + limits.ACCOUNTS_CHECK_S
            self._run(self._look)

    def look_at_once(self) -> None:
        """Make the next check due at once; safe from any thread."""
        self._due = 0.0

    def tell(self, broker: Broker, now: Callable[[], a.Now]) -> None:
        """Pass the queued results to the core."""
        while self._found:
            self._found.popleft()(broker, now())

    def _look(self) -> None:
        """Check both; runs in the thread."""
        try:
            room = os.statvfs(self._data)
        except OSError as e:
            log.error("the room on the disk could not be measured: %s", e)
        else:
            free, total = room.f_bavail * room.f_frsize, room.f_blocks * room.f_frsize
            self._found.append(lambda broker, now: broker.room(free, total, now))
        try:
            if self._store.changed():
                users = self._store.of(UserRecord)
                self._found.append(lambda broker, now: broker.users(users, now))
                self._wake()
        except StorageError as e:
            log.error("the users could not be read again: %s", e)
