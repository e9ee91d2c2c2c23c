"""The client's side of a data flow with a server that knows RFC 11 and nothing of PROTOCOL.md. Sans IO.

The RFC says what a content sequence is for, Confirm and Reject, and nothing of what it counts. So nothing is concluded
from a number that such a server gives: numbers may begin at 0, repeat, have gaps, fall and wrap. It is told its own
numbers, one Confirm for each content, since what a Confirm of several covers depends on what the numbers mean.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from mtl.limits import RESEND_DELAY_S, RESEND_DELAY_TOP_S
from mtl.protocol.consuming import Answer, ConsumerFlow, Hand
from mtl.protocol.settlement import Sent
from mtl.protocol.writing import RefusedContent, WriterFlow
from mtl.wire import commands as c


class RfcReaderFlow:
    """What a reader has been given on the present data flow and has not confirmed, in the order in which it came."""

    __slots__ = ("_numbers",)

    def __init__(self) -> None:
        self._numbers: deque[int | None] = deque()

    def received(self, content: c.Content) -> None:
        """A content came that is to be confirmed."""
        self._numbers.append(content.sequence)

    def finish(self, contents: int) -> list[c.Confirm]:
        """The application is done with so many more contents: what to tell the server. Those of an earlier data flow
        are not confirmed, since their numbers may be other contents' by now.
        """
        numbers = [self._numbers.popleft() for _ in range(contents)]
        return [c.Confirm(number, multiple=False) for number in numbers if number is not None]

    def lost(self) -> None:
        """The data flow is gone, and what its numbers meant."""
        self._numbers = deque([None] * len(self._numbers))


class RfcWriterFlow(WriterFlow):
    """As `WriterFlow`, but Reject means what the RFC says: with recycle the contents that it covers are sent again, in
    identical frames, and no others; without, they are given up and never sent again.
    """

    __slots__ = ()

    def received(self, command: c.Confirm | c.Reject, now: float) -> Sequence[Sent[c.Content]]:
        """Follow the server's Confirm or Reject; what was settled by it. Invalid ones change nothing."""
        if command.sequence > self._sent:
            return ()  # never sent, so it covers nothing (MTL-93, MTL-98)
        if isinstance(command, c.Reject) and command.recycle:
            self._recycle(command, now)
            return ()
        settled = self._unsettled.settle(command.sequence, command.multiple)
        if not settled:
            return ()
        self.progressed += len(settled)
        self._delay = 0.0
        if isinstance(command, c.Reject):
            self.refused += [RefusedContent(x.item.resource, x.first, x.last) for x in settled]
        if self._unsent and self._unsent[0].first <= settled[-1].last:
            gone = {sent.first for sent in settled}  # settled while it waited to be sent again
            self._unsent = deque(sent for sent in self._unsent if sent.first not in gone)
        return settled

    def _recycle(self, reject: c.Reject, now: float) -> None:
        """Send again what is covered and does not wait to be sent already, after a pause that grows until something is
        settled.
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
        self._delay = min(max(RESEND_DELAY_S, self._delay * 2), RESEND_DELAY_TOP_S)
        self._held_until = now + self._delay


class RfcConsumerFlow(ConsumerFlow):
    """As `ConsumerFlow`, but contents are told apart by the order in which they came, and each is answered by itself.

    `Hand.number` is that order, `Hand.position` the sender's number.
    """

    __slots__ = ("_came",)

    def __init__(self, *, confirm: bool = True) -> None:
        super().__init__(confirm=confirm)
        self._came = 0

    def received(self, content: c.Content) -> Hand:
        """A Content arrived."""
        self._came += 1
        if self.confirm:
            self._hand[self._came] = None
        return Hand(self.life, self._came, content.sequence, again=False)

    def answer(self, hand: Hand, answer: Answer, reason: str = "") -> bool:
        """What the application says about a content; False when the content is not in hand (any more). The RFC has no
        place for a reason.
        """
        if hand.life != self.life or hand.number not in self._hand:
            return False
        del self._hand[hand.number]
        self._answered.append((hand.position, answer, reason))
        return True

    def commands(self) -> list[c.Confirm | c.Reject]:
        """What is to be sent for the answers since the last call."""
        answered, self._answered = self._answered, deque()
        return [
            c.Confirm(number, multiple=False)
            if answer is Answer.CONFIRM
            else c.Reject(number, multiple=False, recycle=answer is Answer.RECYCLE)
            for number, answer, _ in answered
        ]
