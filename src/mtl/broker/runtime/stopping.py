"""A broker that stops ends within a bounded time, whatever its disk does, and says what is not on it.

The loop gives a disk `limits.STOP_S`. A thread here watches the loop itself, which may be in the middle of a read or a
sync that never returns. There is no way to end such a call but to end the process.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Sequence

STUCK_S = 15.0
"""A stopping broker that gives no sign of life for so long waits for a disk that does not answer. A slow one syncs a
segment in less."""

_LOOK_S = 0.2

_NAMED = 10
"""So many logs are named at most: there may be thousands, and it is one line."""


def not_synced(names: Sequence[str]) -> str:
    """The one line that says so."""
    named = ", ".join(names[:_NAMED]) or "nothing that was confirmed"
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"stopped while the disk did not take everything; not synced: {named}{more}"


def exit_at_once(line: str) -> None:
    """End this process with exit status 1: threads that hang in the disk would keep it alive for ever."""
    sys.stderr.write(f"mtl: {line}\n")
    sys.stderr.flush()
    os._exit(1)


class StopGuard:
    """Watches a stop. `alive` says when there was a sign of life last, in monotonic seconds; `waiting` names what is
    with the disk; `abandon` gets the line and ends the process.
    """

    def __init__(
        self,
        alive: Callable[[], float],
        waiting: Callable[[], Sequence[str]],
        abandon: Callable[[str], None],
    ) -> None:
        self._alive = alive
        self._waiting = waiting
        self._abandon = abandon
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="mtl-stop", daemon=True)

    def begin(self) -> None:
        """The broker was told to stop. Again is harmless."""
        if self._thread.ident is None:
            self._thread.start()

    def end(self) -> None:
        """It has stopped."""
        self._over.set()

    def _watch(self) -> None:
        while not self._over.wait(_LOOK_S):
            if time.monotonic() - self._alive() > STUCK_S:
                self._abandon(not_synced(self._waiting()))
                return
