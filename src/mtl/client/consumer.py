"""Consuming from queues: each content goes to one consumer, which answers it. See `Connection.consumer`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from mtl.client.consumer_part import ConsumerPart
from mtl.client.consuming import ConsumingLease, QueuedContent
from mtl.client.lease_handle import BlockingLease
from mtl.client.loop import Loop
from mtl.client.notice import Notice
from mtl.client.settings import Settings


class Consumer(ConsumingLease, BlockingLease):
    """A lease to consume from the queues of one or more resources, together with other consumers.

    Iteration gives `QueuedContent`s without end. The lease survives restarts of the broker. Several threads may answer
    contents while one takes them. Any method may raise `Unreachable` if the broker does not answer for
    `retry_deadline`, `Refused` if a resource is gone. `close` sends the last answers; unanswered contents go back to
    the queue.
    """

    def __init__(
        self, loop: Loop, settings: Settings, part: ConsumerPart, closed: Callable[[], None]
    ) -> None:
        super().__init__(loop, settings, part, closed)
        self._notice = Notice()
        part.listener = self._notice.notify

    def next(self, timeout: float | None = None) -> QueuedContent | None:
        """The next content; None after `timeout` seconds without one (None: no limit)."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while (content := self._next()) is None:
            left = None if deadline is None else deadline - time.monotonic()
            if not self._notice.wait(self._is_wait_over, left):
                return None
        return content

    def __iter__(self) -> Iterator[QueuedContent]:
        """Every content. Waits for further contents without a limit."""
        while True:
            content = self.next()
            if content is not None:
                yield content
