"""A lock of application's threads among themselves, which an interrupted call (Ctrl-C) never leaves held.

The loop does not take it (`mtl.client.notice`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Turn:
    """Runs calls one after the other. Not for a call within a call of the same turn."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.RLock()  # knows its thread, as `_free` requires

    def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `call` when it is this thread's turn."""
        try:
            with self._lock:
                return call(*args, **kwargs)
        except BaseException:
            self._free()
            raise

    def _free(self) -> None:
        """Release the lock if this thread holds it. CPython until 3.13 enters the block of a lock together with taking
        it; 3.14 may be interrupted in between.
        """
        with suppress(RuntimeError):  # not held by this thread
            while True:
                self._lock.release()
