"""Wakes an application's threads from the IO thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Notice:
    """A condition for waiting readers and consumers."""

    def __init__(self) -> None:
        self.condition = threading.Condition()
        self._waiters = 0

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Hold `condition` and count as a waiter, so that `notify` between a check and the wait is not missed."""
        with self.condition:
            self._waiters += 1
            try:
                yield
            finally:
                self._waiters -= 1

    def notify(self) -> None:
        """Wake all waiting threads."""
        if self._waiters:
            with self.condition:
                self.condition.notify_all()
