"""Consuming from queues: contents that no other consumer gets, each to be answered. See `Connection.consumer`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from mtl.client.contents import Content
from mtl.client.deliveries import Deliveries
from mtl.client.io import Loop
from mtl.client.leased import Leased
from mtl.client.settings import Settings
from mtl.protocol.consuming import Answer, Hand


class QueuedContent(Content):
    """A content of a queue. `redelivered`: it may have been delivered before, to this consumer or another.

    It is this consumer's until it says `confirm` or `reject`, or goes. Answers may be given from any thread; an answer
    to what went back to the queue meanwhile (the connection was lost) is ignored: the content comes again.
    """

    __slots__ = ("_answer", "_hand", "redelivered")

    def __init__(
        self,
        resource: str,
        hand: Hand,
        properties: bytes,
        body: bytes,
        answer: Callable[[Hand, Answer, str], None],
    ) -> None:
        super().__init__(resource, hand.position, properties, body)
        self.redelivered = hand.again
        self._hand = hand
        self._answer = answer

    def confirm(self) -> None:
        """Done: it is never delivered again."""
        self._answer(self._hand, Answer.CONFIRM, "")

    def reject(self, *, recycle: bool = False, reason: str = "") -> None:
        """Not done: to the dead letters, or with `recycle` again after a pause, to another consumer if there is one,
        until the resource's limit of deliveries is reached. The dead letter's property `dead-letter-reason` has the
        `reason`, up to 255 octets of it (PROTOCOL.md 6.3).
        """
        self._answer(self._hand, Answer.RECYCLE if recycle else Answer.REJECT, reason)


class Consumer(Leased):
    """A lease to consume from the queues of one or more resources, beside whoever else does.

    Iterating gives `QueuedContent`s for ever. It survives restarts of the broker. Several threads may answer contents
    while one takes them. Raises (from wherever it is used) `Unreachable` when nobody answers for `retry_deadline`,
    `Refused` when a resource is gone. Closing sends the last answers; what was not answered goes back to the queue.
    """

    what = "consumer"

    def __init__(
        self, loop: Loop, settings: Settings, deliveries: Deliveries, closed: Callable[[], None]
    ) -> None:
        super().__init__(loop, settings, deliveries, closed)
        self._deliveries = deliveries
        self._posted = False
        self._only = (deliveries.options.resources or ("",))[0]

    @property
    def queue(self) -> str:
        """The name of the queues that are consumed from."""
        lease = self._deliveries.lease
        return (lease.group if lease is not None else None) or ""

    # --- contents -------------------------------------------------------------------------------------------

    def next(self, timeout: float | None = None) -> QueuedContent | None:
        """The next content; None after `timeout` seconds without one (None: no limit)."""
        self._check()
        deliveries = self._deliveries
        deadline = None if timeout is None else time.monotonic() + timeout
        with deliveries.waiting():
            while True:
                try:
                    hand, content = deliveries.queue.popleft()
                except IndexError:  # nothing there, or the connection was lost just now
                    pass
                else:
                    body = bytes(content.body)
                    name = (
                        content.resource or self._only
                    )  # left out by a server that was asked for one (MTL-83)
                    return QueuedContent(name, hand, content.properties, body, self._answer)
                if deliveries.error is not None:
                    raise deliveries.error
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    return None
                deliveries.condition.wait(left)

    def __iter__(self) -> Iterator[QueuedContent]:
        """Every content, for ever."""
        while True:
            content = self.next()
            if content is not None:
                yield content

    def summon(self, resource: str) -> None:
        """Consume from a resource, too: one that was made later, where the consumer named none."""
        self._check()
        self._loop.post(lambda: self._deliveries.summon(resource))

    def dismiss(self, resource: str) -> None:
        """Take nothing more from a resource."""
        self._check()
        self._loop.post(lambda: self._deliveries.dismiss(resource))

    def listen(self, listener: Callable[[], None]) -> None:
        """Call `listener`, in the IO thread, whenever `next(0)` may have something new (mtl.client.aio)."""
        self._deliveries.listener = listener

    def _answer(self, hand: Hand, answer: Answer, reason: str) -> None:
        self._check()
        self._deliveries.answers.append((hand, answer, reason))
        if not self._posted:  # once for all answers until the IO thread comes to them
            self._posted = True
            self._loop.post(self._send_answers)

    def _send_answers(self) -> None:
        self._posted = False
        self._deliveries.answer()
