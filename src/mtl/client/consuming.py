"""The application's part of a consumer that does not wait: the common base of both clients' consumers.

It takes the contents that `mtl.client.consumer_part` has put into its queue, and passes on the application's answers.
Waiting for contents is in `mtl.client.consumer` and `mtl.client.aio.consumer`.
"""

from __future__ import annotations

from collections.abc import Callable

from mtl.client.consumer_part import ConsumerPart
from mtl.client.contents import Content
from mtl.client.lease_handle import LeaseHandle
from mtl.client.loop import Loop
from mtl.client.settings import Settings
from mtl.protocol.consuming import ConsumerAnswer, Hand
from mtl.wire.fields import encode_short


class QueuedContent(Content):
    """A content of a queue. `redelivered`: it may have been delivered before, to this consumer or another.

    It belongs to this consumer until `confirm` or `reject`, or the end of the lease. Any thread may answer. If the
    content went back to the queue meanwhile (the connection was lost), the answer is ignored and the content is
    delivered again.
    """

    __slots__ = ("_answer", "_hand", "redelivered")

    def __init__(
        self,
        resource: str,
        hand: Hand,
        properties: bytes,
        body: bytes,
        answer: Callable[[Hand, ConsumerAnswer, str], None],
    ) -> None:
        super().__init__(resource, hand.position, properties, body)
        self.redelivered = hand.again
        self._hand = hand
        self._answer = answer

    def confirm(self) -> None:
        """Settle the content: it is never delivered again."""
        self._answer(self._hand, ConsumerAnswer.CONFIRM, "")

    def reject(self, *, recycle: bool = False, reason: str = "") -> None:
        """Send the content to the dead letters. With `recycle` it is delivered again after a pause instead, to another
        consumer if there is one, until the resource's limit of deliveries is reached. The dead letter's property
        `dead-letter-reason` has the `reason`, up to 255 octets of it (PROTOCOL.md 6.3).
        """
        if not isinstance(reason, str):
            raise TypeError(f"the reason of a reject has to be a str, not {type(reason).__name__}")
        self._answer(self._hand, ConsumerAnswer.RECYCLE if recycle else ConsumerAnswer.REJECT, reason)


class ConsumingLease(LeaseHandle):
    """See the module."""

    kind = "consumer"

    _part: ConsumerPart

    def __init__(
        self, loop: Loop, settings: Settings, part: ConsumerPart, closed: Callable[[], None]
    ) -> None:
        super().__init__(loop, settings, part, closed)
        self._posted = False
        self._only = (part.options.resources or ("",))[0]

    @property
    def queue(self) -> str:
        """The name of the queues from which this consumes."""
        lease = self._part.lease
        return (lease.group if lease is not None else None) or ""

    def summon(self, resource: str) -> None:
        """Consume from a further resource. With a lease without `resources` it may be newer than the lease."""
        self._check()
        encode_short(resource)  # an invalid name has to be an error here, not later in the loop
        self._loop.post(lambda: self._part.summon(resource))

    def dismiss(self, resource: str) -> None:
        """Stop consuming from a resource."""
        self._check()
        encode_short(resource)
        self._loop.post(lambda: self._part.dismiss(resource))

    def _next(self) -> QueuedContent | None:
        """The next content if it has arrived, else None."""
        self._check()
        # read before the queue: contents that were delivered before the error come first
        part = self._part
        error, queue = part.error, part.queue
        if error is None and self._is_in_doubt:
            self._loop.post(part.flow.prove)  # until then another consumer may have the contents here
            return None
        try:
            while True:
                first = hand, content = queue[0]
                # A server may omit the name if the lease has only one resource (MTL-83).
                name = content.resource or self._only
                queued = QueuedContent(name, hand, content.properties, bytes(content.body), self._answer)
                # Taken last: one that was taken by an interrupted call would never be answered. It may have gone
                # meanwhile, because the connection was lost.
                if queue[0] is first:
                    del queue[0]
                    return queued
        except IndexError:  # the queue is empty
            if error is not None:
                raise error from None
            return None

    def _is_wait_over(self) -> bool:
        """Whether a wait can end: there is a content, or an error."""
        if self._part.error is not None or not self._open:
            return True
        return bool(self._part.queue) and not self._is_in_doubt

    @property
    def _is_in_doubt(self) -> bool:
        return self._part.delivers_again and self._part.flow.is_doubtful

    def _answer(self, hand: Hand, answer: ConsumerAnswer, reason: str) -> None:
        self._check()
        self._part.answers.append((hand, answer, reason))
        if not self._posted:  # one post for all answers until the loop handles them
            try:
                self._posted = True
                self._loop.post(self._send_answers)
            except BaseException:  # interrupted
                self._posted = False
                raise

    def _send_answers(self) -> None:
        self._posted = False
        self._part.answer()
