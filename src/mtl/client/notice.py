"""How the IO thread tells an application's threads that there is something new."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Notice:
    """What readers wait on. `condition` is only for waiting; an application that cannot wait has a `listener` instead,
    which is called, in the IO thread, whenever there may be something new.
    """

    def __init__(self) -> None:
        self.condition = threading.Condition()
        self.listener: Callable[[], None] | None = None
        self._waiters = 0

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Hold `condition`, and be notified. What arrives between a look at the queue and the wait is not missed."""
        with self.condition:
            self._waiters += 1
            try:
                yield
            finally:
                self._waiters -= 1

    def notify(self) -> None:
        """Wake whoever waits, if anybody does."""
        if self._waiters:
            with self.condition:
                self.condition.notify_all()
        if self.listener is not None:
            self.listener()
