"""Ends a stopping broker within a bounded time, even if its disk hangs, and reports the data that is not synced.

The loop gives a disk `STOP_S`. A thread here watches the loop itself, which may be blocked in a read or a sync
that never returns. The only way to end such a call is to end the process.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Sequence

STUCK_S = 15.0
"""Seconds without progress of a stopping broker's loop after which its disk counts as hanging. A slow disk syncs a
segment in less time."""

LAST_LINE_S = 2.0
"""Seconds for which the last line may wait for the reader of standard error."""

_POLL_S = 0.2

_NAMED = 10
"""Most logs named in the one line; there may be thousands."""


def not_synced(names: Sequence[str]) -> str:
    """The line that names the logs that are not synced."""
    named = ", ".join(names[:_NAMED]) or "nothing that was confirmed"
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"stopped while the disk did not take everything; not synced: {named}{more}"


def exit_at_once(line: str) -> None:
    """End this process with exit status 1: threads that hang in the disk would keep it alive. The line is written if
    standard error takes it within LAST_LINE_S.
    """
    writing = threading.Thread(target=_write, args=(line,), daemon=True)
    writing.start()
    writing.join(LAST_LINE_S)
    os._exit(1)


def _write(line: str) -> None:
    if sys.stderr is not None:  # None: its descriptor was closed at the start
        sys.stderr.write(f"mtl: {line}\n")
        sys.stderr.flush()


class StopGuard:
    """Watches a stop. `alive` is the time of the loop's last progress, in monotonic seconds; `waiting` names the logs
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
        """Begin to watch: the broker is stopping. Calling it again is harmless."""
        if self._thread.ident is None:
            self._thread.start()

    def end(self) -> None:
        """End the watch: the broker has stopped."""
        self._over.set()

    def _watch(self) -> None:
        while not self._over.wait(_POLL_S):
            if time.monotonic() - self._alive() > STUCK_S:
                self._abandon(not_synced(self._waiting()))
                return
