"""Wakes the event loop from the IO thread, once for several signals."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Bell:
    """Any thread may call `ring`. The event loop then calls `hear` once, and sees everything done before `ring`."""

    __slots__ = ("_hear", "_loop", "_ringing")

    def __init__(self, hear: Callable[[], None]) -> None:
        """For the running event loop, in which `hear` is called."""
        self._loop = asyncio.get_running_loop()
        self._hear = hear
        self._ringing = False

    def ring(self) -> None:
        """Signal the event loop. Never blocks; no error after the event loop was closed."""
        if self._ringing:
            return
        self._ringing = True
        try:
            self._loop.call_soon_threadsafe(self._heard)
        except RuntimeError:
            pass  # the event loop is closed, so no task waits in it

    def _heard(self) -> None:
        # Reset before `hear` looks, so that later changes ring again.
        self._ringing = False
        self._hear()
