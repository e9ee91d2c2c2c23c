"""From the IO thread into the event loop: "look again", once for however often it was said."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Bell:
    """`ring` is called by any thread; `hear` then once in the event loop, after everything that was done before."""

    __slots__ = ("_hear", "_loop", "_ringing")

    def __init__(self, hear: Callable[[], None]) -> None:
        """Belongs to the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._hear = hear
        self._ringing = False

    def ring(self) -> None:
        """Cheap, never waits, harmless after the event loop's end."""
        if self._ringing:
            return
        self._ringing = True
        try:
            self._loop.call_soon_threadsafe(self._heard)
        except RuntimeError:
            pass  # the event loop is closed, and nobody waits in it

    def _heard(self) -> None:
        # Before the look: whatever happens from now on rings again.
        self._ringing = False
        self._hear()
