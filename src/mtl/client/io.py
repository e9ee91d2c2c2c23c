"""The IO thread: one per process, made when it is first needed.

It owns every socket of the clients, their heartbeats and reconnects, so that an application that blocks, or is
suspended in the middle of a generator, loses nothing.

Other threads hand it work with `post` and wait on conditions of their own. After a fork the child makes its own.
"""

from __future__ import annotations

import atexit
import heapq
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Protocol
from uuid import uuid4

from mtl.errors import Closed
from mtl.net.endpoint import Network, Poll
from mtl.net.network import ZmqNetwork

_STOP_S = 2.0
_DUE_TOGETHER_S = 0.001


class Member(Protocol):
    """Something that lives in the IO thread and that others wait for."""

    def abandoned(self) -> None:
        """The IO thread ends: nobody will answer any more."""


class Timer:
    """A call that is due; `cancel` is harmless at any time."""

    __slots__ = ("call",)

    def __init__(self, call: Callable[[], None]) -> None:
        self.call: Callable[[], None] | None = call

    def cancel(self) -> None:
        """Do not call."""
        self.call = None


class Loop:
    """Waits for links, timers and posted work, and does one thing at a time. `step` is one round of it. `new_id` makes
    ids that nobody has had before.
    """

    def __init__(
        self,
        network: Network | None = None,
        clock: Callable[[], float] = time.monotonic,
        new_id: Callable[[], str] = lambda: uuid4().hex,
    ) -> None:
        self.network: Network = network or ZmqNetwork()
        self.poll: Poll = self.network.poll()
        self.clock = clock
        self.new_id = new_id
        self.pid = os.getpid()
        self.members: set[Member] = set()
        self.running = True
        self._posted: deque[Callable[[], None]] = deque()
        self._timers: list[tuple[float, int, Timer]] = []
        self._count = count()
        self._asleep = False
        self._waking = threading.Lock()
        """Held to wake the poll, and to close it: its descriptor may be somebody else's afterwards."""
        self._thread: threading.Thread | None = None

    # --- from any thread ------------------------------------------------------------------------------------

    def post(self, call: Callable[[], None]) -> None:
        """Run `call` in the IO thread, soon. Raises `Closed` when that has ended."""
        if not self.running:
            raise Closed("the client's IO thread has ended")
        self._posted.append(call)
        if self._asleep:
            with self._waking:
                if self._asleep:
                    self._asleep = False
                    self.poll.wake()

    def start(self) -> None:
        """Begin."""
        self._thread = threading.Thread(target=self.run, name="mtl-io", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End, and wait until it has."""
        if self.running:
            self.post(self._end)
        if self._thread is not None:
            self._thread.join(_STOP_S)

    # --- in the IO thread -----------------------------------------------------------------------------------

    def after(self, delay: float, call: Callable[[], None]) -> Timer:
        """Run `call` after `delay` seconds."""
        timer = Timer(call)
        heapq.heappush(self._timers, (self.clock() + delay, next(self._count), timer))
        return timer

    def run(self) -> None:
        """Work until stopped."""
        try:
            while self.running:
                self.step(None)
        finally:
            self.running = False
            for member in list(self.members):
                member.abandoned()
            with self._waking:
                self._asleep = False
                self.poll.close()

    def step(self, patience: float | None) -> None:
        """One round: wait at most `patience` seconds, hear the links, run what is due, run what was posted."""
        self._asleep = True
        timeout = 0.0 if self._posted else self._until_next(patience)
        for watcher, link, what in self.poll.wait(timeout):
            watcher.ready(link, what)
        self._asleep = False
        now = self.clock() + _DUE_TOGETHER_S
        due = []
        while self._timers and self._timers[0][0] <= now:
            due.append(heapq.heappop(self._timers)[2])
        # Only these: a call that finds itself early and sets its timer again would be called over and over.
        for timer in due:
            if timer.call is not None:
                timer.call()
        for _ in range(len(self._posted)):
            self._posted.popleft()()

    def _until_next(self, patience: float | None) -> float | None:
        while self._timers and self._timers[0][2].call is None:
            heapq.heappop(self._timers)
        if not self._timers:
            return patience
        due = max(0.0, self._timers[0][0] - self.clock())
        return due if patience is None else min(due, patience)

    def _end(self) -> None:
        self.running = False


# --- the one of this process --------------------------------------------------------------------------------

_loop: Loop | None = None
_lock = threading.Lock()
_pid = os.getpid()


def process() -> int:
    """The id of this process, without asking the system, which costs a tenth of publishing a content."""
    return _pid


def loop() -> Loop:
    """The IO thread of this process, started if need be."""
    global _loop
    with _lock:
        if _loop is None or not _loop.running:
            _loop = Loop()
            _loop.start()
        return _loop


def _forget() -> None:
    """In the child of a fork: the thread is not here, and its sockets are not ours to touch."""
    global _loop, _lock, _pid
    _abandoned.append(_loop)  # kept, for finalizers would touch the parent's sockets
    _loop = None
    _lock = threading.Lock()
    _pid = os.getpid()


def _stop() -> None:
    if _loop is not None and _loop.pid == os.getpid():
        _loop.stop()


_abandoned: list[Loop | None] = []
os.register_at_fork(after_in_child=_forget)
atexit.register(_stop)
