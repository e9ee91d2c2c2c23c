"""Messages of libzmq that an application has without a copy, until the thread that received them frees them.

A copy of each pack took a third of the speed through a socket (`./scripts/bench packed-delivery`). But the thread that
frees a message runs signal handlers (pyzmq, `Frame.__dealloc__`), and loses their exceptions: in the application's main
thread Ctrl-C would have no effect. So the frame is referenced here, too, until nothing else references it. The windows
of the leases bound what is held, except what the application itself keeps.
"""

from __future__ import annotations

import sys
from collections import deque
from typing import Final, cast

import zmq

_OWN: Final = 2
"""References to a frame that nothing else has: the variable of `free_unused`, and the argument of `getrefcount`."""

_AT_ONCE: Final = 16
"""Frames that are looked at in one round of the event loop: an application may keep thousands."""


class HeldFrames:
    """See the module. For one thread."""

    def __init__(self) -> None:
        self._frames: deque[zmq.Frame] = deque()

    def __len__(self) -> int:
        return len(self._frames)

    def hold(self, frame: zmq.Frame) -> memoryview:
        """The octets of a frame, for any thread."""
        self._frames.append(frame)
        return memoryview(cast("bytes", frame))  # its type lacks the buffer protocol

    def free_unused(self) -> None:
        """Free some of the frames that only this object has."""
        for _ in range(min(_AT_ONCE, len(self._frames))):
            frame = self._frames.popleft()
            if sys.getrefcount(frame) > _OWN:
                self._frames.append(frame)
