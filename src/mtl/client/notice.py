"""Wakes an application's threads from the thread of the loop, and the rule for everything that both share.

Python raises KeyboardInterrupt (SIGINT) in the application's main thread, between any two of its instructions. A call
that is interrupted may leave a `threading` lock or condition held: between taking the lock and entering the block, or
in the standard library's own Python code (`Condition`, `Event`, `Thread.start`, `logging`). A loop that takes such a
lock stops for good, and with it all connections of the process. So:

1. The thread of the loop never takes a lock that an application's thread takes, and does not log. Application's
   threads have locks among themselves only (`mtl.client.turn`).
2. An application's thread changes the state of the loop by one `Loop.post` alone: before it nothing has happened,
   after it everything will. The contents of a writer are published by one assignment (`mtl.client.handover`).
3. The loop stores results, and calls `Notice.notify`. A waiting thread sleeps on a lock of its own, which only the loop
   releases, once.
4. State of the application's part is changed last, when nothing can be interrupted any more before the call returns;
   or the next call can tell from other state that the change is missing. Thus the call after an interrupted one neither
   loses nor repeats a content.
"""

from __future__ import annotations

import time
from _thread import LockType, allocate_lock
from collections import deque
from collections.abc import Callable

SLEEP_S = 0.5
"""The longest sleep without a look for signals: one that arrives between the interpreter's last look and the system
call that sleeps does not end the sleep."""


class Notice:
    """Lets threads wait until the loop has changed something."""

    def __init__(self) -> None:
        self._waiters: deque[LockType] = deque()

    @property
    def waiters(self) -> int:
        """The number of threads that sleep, or are about to."""
        return len(self._waiters)

    def wait(self, is_over: Callable[[], bool], seconds: float | None = None) -> bool:
        """Wait until `is_over`, for `seconds` at most (None: no limit). Returns whether it is."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while not is_over():
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return False
            self._sleep(is_over, left)
        return True

    def _sleep(self, is_over: Callable[[], bool], seconds: float | None) -> None:
        """Sleep until the next `notify`, or for a while, unless it is over already."""
        waiter = allocate_lock()
        waiter.acquire()
        try:
            self._waiters.append(waiter)
            if not is_over():  # a change before the append has notified without this waiter
                waiter.acquire(timeout=SLEEP_S if seconds is None else min(seconds, SLEEP_S))
        finally:
            if waiter in self._waiters:
                self._forget(waiter)

    def _forget(self, waiter: LockType) -> None:
        try:
            self._waiters.remove(waiter)
        except ValueError:
            pass  # `notify` was faster

    def notify(self) -> None:
        """Wake all waiting threads. Never blocks."""
        waiters = self._waiters
        while waiters:
            try:
                waiter = waiters.popleft()
            except IndexError:
                return  # its thread has given up meanwhile
            waiter.release()
