"""The loop of a client: its links, timers and posted calls, one round at a time.

A round never waits longer than its argument. Three drivers run rounds: the IO thread of the blocking client
(`mtl.client.io`), the event loop of an asyncio client (`mtl.client.aio.loop`), and the simulator of the tests. All
sessions and flows run in rounds, so they need no locks.
"""

from __future__ import annotations

import heapq
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import count
from typing import Protocol
from uuid import uuid4

from mtl.errors import ClientFailed, Closed, MtlError
from mtl.net.endpoint import Link, LinkEvents, Network, Poll, Watcher
from mtl.net.network import ZmqNetwork

_DUE_TOGETHER_S = 0.001
"""Timers that are due within this time, in seconds, run in the same round: the loop wakes up once, and not again for
each of them. The system's waits are in whole milliseconds, so no timer is more exact than that."""


def do_nothing() -> None:
    """The callback that does nothing."""


class Member(Protocol):
    """An object of the loop for which the application may wait."""

    def abandoned(self, error: MtlError) -> None:
        """The loop ends: fail all waits with `error`."""


class Timer:
    """A scheduled call; `cancel` is allowed at any time."""

    __slots__ = ("call",)

    def __init__(self, call: Callable[[], None]) -> None:
        self.call: Callable[[], None] | None = call

    def cancel(self) -> None:
        """Drop the call."""
        self.call = None


class Loop:
    """Links, timers and posted calls. `step` is one round of them. `new_id` makes unique ids."""

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
        self.members: set[Member] = set()
        self.running = True
        self.failure: ClientFailed | None = None
        """The exception that ended it."""
        self._posted: deque[Callable[[], None]] = deque()
        self._timers: list[tuple[float, int, Timer]] = []
        self._count = count()

    def post(self, call: Callable[[], None]) -> None:
        """Run `call` in the next round, soon. Raises `Closed` if the loop has ended.

        If it is interrupted, the call is run, or it is not; a call that is run is run soon.
        """
        try:
            self._posted.append(call)
            self._wake()
        except BaseException:  # interrupted
            self._wake()
            raise
        if not self.running:  # after the append: `end` runs the calls that it finds
            raise self.failure or Closed(
                "the client's loop has ended: its connection is closed, or its process ends"
            )

    def _wake(self) -> None:
        """Make the driver run a round soon."""

    def after(self, delay: float, call: Callable[[], None]) -> Timer:
        """Run `call` after `delay` seconds. For calls in a round."""
        timer = Timer(call)
        heapq.heappush(self._timers, (self.clock() + delay, next(self._count), timer))
        return timer

    def step(self, patience: float | None) -> None:
        """One round: wait at most `patience` seconds for links, then run their callbacks, due timers, posted calls."""
        self._handle(self.poll.wait(self._pause(patience)))

    def pause(self) -> float | None:
        """Seconds until the next round is due, if no link has events before; None if only links can make one due."""
        return 0.0 if self.poll.may_have_events else self._pause(None)

    def end(self, failure: ClientFailed | None = None) -> None:
        """Run the posted calls, fail all waits, and close the poll. Nothing can be posted afterwards. `failure`: the
        exception that ended the loop, if one did.
        """
        self.running, self.failure = False, failure
        while self._posted:
            with suppress(Exception):  # whatever it was to do: every wait fails below
                self._posted.popleft()()
        for member in list(self.members):
            member.abandoned(failure or Closed("the connection was closed, or its process ends"))
        self._close_poll()

    def _close_poll(self) -> None:
        self.poll.close()

    def _handle(self, happened: Iterable[tuple[Watcher, Link, LinkEvents]]) -> None:
        for watcher, link, events in happened:
            watcher.ready(link, events)
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

    def _pause(self, patience: float | None) -> float | None:
        """Seconds until posted calls or timers are due, `patience` at most."""
        if self._posted:
            return 0.0
        while self._timers and self._timers[0][2].call is None:
            heapq.heappop(self._timers)
        if not self._timers:
            return patience
        due = max(0.0, self._timers[0][0] - self.clock())
        return due if patience is None else min(due, patience)
