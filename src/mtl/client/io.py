"""The IO thread: one per process, started on first use.

It owns every socket of the clients, their heartbeats and reconnects, so that connections survive while the application
blocks, or is suspended in a generator.

Other threads pass work to it with `post` and wait on their own conditions. After a fork the child starts another one.
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
    """An object of the IO thread for which other threads may wait."""

    def abandoned(self) -> None:
        """The IO thread ends: fail all waits."""


class Timer:
    """A scheduled call; `cancel` is allowed at any time."""

    __slots__ = ("call",)

    def __init__(self, call: Callable[[], None]) -> None:
        self.call: Callable[[], None] | None = call

    def cancel(self) -> None:
        """Drop the call."""
        self.call = None


class Loop:
    """An event loop of links, timers and posted calls. `step` is one round of it. `new_id` makes unique ids."""

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
        """Held to wake the poll, and to close it: after that its descriptor may be reused."""
        self._thread: threading.Thread | None = None

    # --- from any thread ------------------------------------------------------------------------------------

    def post(self, call: Callable[[], None]) -> None:
        """Run `call` in the IO thread, soon. Raises `Closed` if the thread has ended."""
        if not self.running:
            raise Closed("the client's IO thread has ended")
        self._posted.append(call)
        if self._asleep:
            with self._waking:
                if self._asleep:
                    self._asleep = False
                    self.poll.wake()

    def start(self) -> None:
        """Start the thread."""
        self._thread = threading.Thread(target=self.run, name="mtl-io", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread, and wait for its end, _STOP_S seconds at most."""
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
        """Run rounds until stopped."""
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
        """One round: wait at most `patience` seconds for links, then run their callbacks, due timers, posted calls."""
        self._asleep = True
        timeout = 0.0 if self._posted else self._until_next(patience)
        for watcher, link, what in self.poll.wait(timeout):
            watcher.ready(link, what)
        self._asleep = False
        now = self.clock() + _DUE_TOGETHER_S
        due = []
        while self._timers and self._timers[0][0] <= now:
            due.append(heapq.heappop(self._timers)[2])
        # Only these: a call that fires early and sets its timer again would be repeated in this round.
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


# --- the IO thread of this process --------------------------------------------------------------------------

_loop: Loop | None = None
_lock = threading.Lock()
_pid = os.getpid()


def process() -> int:
    """The id of this process, without a system call, which takes a tenth of the time to publish a content."""
    return _pid


def loop() -> Loop:
    """The IO thread of this process, started if necessary."""
    global _loop
    with _lock:
        if _loop is None or not _loop.running:
            _loop = Loop()
            _loop.start()
        return _loop


def _forget() -> None:
    """Run in the child of a fork, which does not have the thread and must not use its sockets."""
    global _loop, _lock, _pid
    _abandoned.append(_loop)  # keep a reference: finalizers would use the parent's sockets
    _loop = None
    _lock = threading.Lock()
    _pid = os.getpid()


def _stop() -> None:
    if _loop is not None and _loop.pid == os.getpid():
        _loop.stop()


_abandoned: list[Loop | None] = []
os.register_at_fork(after_in_child=_forget)
atexit.register(_stop)
