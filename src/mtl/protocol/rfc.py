"""The client's side of a data flow with a server that implements RFC 11 without PROTOCOL.md. Sans IO.

The RFC uses content sequences for Confirm and Reject, and does not define their unit. So the client assumes
nothing about the numbers of such a server: they may begin at 0, repeat, have gaps, fall and wrap. It sends one Confirm
for each content, with the server's number: the range of a Confirm(multiple) depends on the unit of the numbers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from mtl.protocol.consuming import ConsumerAnswer, ConsumerFlow, Hand
from mtl.protocol.settlement import Sent
from mtl.protocol.writing import RefusedContent, WriterFlow
from mtl.wire import commands


class RfcReaderFlow:
    """The numbers of contents that a reader received and has not confirmed, in order of arrival (None: of an earlier
    data flow).
    """

    __slots__ = ("_numbers",)

    def __init__(self) -> None:
        self._numbers: deque[int | None] = deque()

    def received(self, content: commands.Content) -> None:
        """A content arrived that has to be confirmed."""
        self._numbers.append(content.sequence)

    def finish(self, contents: int) -> list[commands.Confirm]:
        """The application has finished the given number of further contents. Returns the Confirms to send. Contents
        of an earlier data flow are not confirmed, because their numbers may belong to other contents by now.
        """
        numbers = [self._numbers.popleft() for _ in range(contents)]
        return [commands.Confirm(number, multiple=False) for number in numbers if number is not None]

    def lost(self) -> None:
        """The data flow has ended, and its numbers are not valid any more."""
        self._numbers = deque([None] * len(self._numbers))


class RfcWriterFlow(WriterFlow):
    """As `WriterFlow`, but with Reject as in the RFC: with recycle exactly the contents that it covers are sent again,
    in identical frames; without recycle they are refused and never sent again.
    """

    __slots__ = ()

    def received(
        self, command: commands.Confirm | commands.Reject, now: float
    ) -> Sequence[Sent[commands.Content]]:
        """Apply the server's Confirm or Reject and return the settled contents. Invalid ones change nothing."""
        if command.sequence > self._sent:
            return ()  # never sent, so it covers nothing (MTL-93, MTL-98)
        if isinstance(command, commands.Reject) and command.recycle:
            self._recycle(command, now)
            return ()
        settled = self._unsettled.settle(command.sequence, command.multiple)
        if not settled:
            return ()
        self.progressed += len(settled)
        self._backoff.succeeded()
        if isinstance(command, commands.Reject):
            self.refused += [RefusedContent(x.item.resource, x.first, x.last) for x in settled]
        if self._unsent and self._unsent[0].first <= settled[-1].last:
            gone = {sent.first for sent in settled}  # settled while it waited to be sent again
            self._unsent = deque(sent for sent in self._unsent if sent.first not in gone)
        return settled

    def _recycle(self, reject: commands.Reject, now: float) -> None:
        """Send the covered contents again, except those that already wait for that, after a pause that grows until a
        content is settled.
        """
        waiting = {sent.first for sent in self._unsent} if self._unsent else set()
        again = [
            sent
            for sent in self._unsettled
            if (sent.last <= reject.sequence if reject.multiple else sent.last == reject.sequence)
            and sent.first not in waiting
        ]
        if not again or not self.confirm:
            return
        self._unsent = deque(sorted([*again, *self._unsent], key=lambda sent: sent.first))
        self._held_until = now + self._backoff.failed()


class RfcConsumerFlow(ConsumerFlow):
    """As `ConsumerFlow`, but contents are distinguished by their order of arrival, and each is answered separately.

    `Hand.number` counts arrivals, `Hand.position` is the sender's number.
    """

    __slots__ = ("_received",)

    def __init__(self, *, confirm: bool = True) -> None:
        super().__init__(confirm=confirm)
        self._received = 0

    def received(self, content: commands.Content) -> Hand:
        """A Content arrived."""
        self._received += 1
        if self.confirm:
            self._hand[self._received] = None
        return Hand(self.life, self._received, content.sequence, again=False)

    def answer(self, hand: Hand, answer: ConsumerAnswer, reason: str = "") -> bool:
        """The application answers a content; False when the content is not in hand (any more). The RFC has no
        place for a reason.
        """
        if hand.life != self.life or hand.number not in self._hand:
            return False
        del self._hand[hand.number]
        self._answered.append((hand.position, answer, reason))
        return True

    def take_commands(self) -> list[commands.Confirm | commands.Reject]:
        """The commands for the answers since the last call."""
        answered, self._answered = self._answered, deque()
        return [
            commands.Confirm(number, multiple=False)
            if answer is ConsumerAnswer.CONFIRM
            else commands.Reject(number, multiple=False, recycle=answer is ConsumerAnswer.RECYCLE)
            for number, answer, _ in answered
        ]
