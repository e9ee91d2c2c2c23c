"""The consuming client's side of a data flow in a queue: the contents in hand and their answers. Sans IO.

PROTOCOL.md 6. The content sequence is a delivery number of the lease. When the flow is lost, contents in hand go back
to the queue and are delivered again, to this consumer or another, marked as redelivered. In this flow they belong to an
older `life`, and answers to them are ignored.

    received ──► in hand ──answer──► commands: one Confirm(multiple) for the oldest in hand, single ones for the others
"""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import NamedTuple

from mtl.wire import commands
from mtl.wire.fields import decode_table


class ConsumerAnswer(Enum):
    """A consumer's answer to a content: done; not accepted (it becomes a dead letter); to be delivered again
    later.
    """

    CONFIRM = "confirm"
    REJECT = "reject"
    RECYCLE = "recycle"


class Hand(NamedTuple):
    """A content in hand: the flow's life, the delivery number, the position in the log, and whether it may have been
    delivered before.
    """

    life: int
    number: int
    position: int
    again: bool


class ConsumerFlow:
    """A consumer's contents in hand and the answers to send. Without `confirm` there are neither."""

    __slots__ = ("_answered", "_hand", "confirm", "life")

    def __init__(self, *, confirm: bool = True) -> None:
        self.confirm = confirm
        self.life = 0
        self._hand: dict[int, None] = {}
        self._answered: deque[tuple[int, ConsumerAnswer, str]] = deque()

    def __len__(self) -> int:
        """The number of contents in hand."""
        return len(self._hand)

    def received(self, content: commands.Content) -> Hand:
        """A Content arrived. If the server sends no position, the delivery number is used."""
        if self.confirm:
            self._hand[content.sequence] = None
        table = decode_table(content.properties) if b"mtl-" in content.properties else {}
        position = table.get(commands.SEQUENCE)
        place = position if type(position) is int else content.sequence
        return Hand(self.life, content.sequence, place, table.get(commands.REDELIVERED) is True)

    def answer(self, hand: Hand, answer: ConsumerAnswer, reason: str = "") -> bool:
        """The application answers a content, a rejection with its `reason`; False when the content is not in
        hand (any more).
        """
        if hand.life != self.life or hand.number not in self._hand:
            return False
        del self._hand[hand.number]
        self._answered.append((hand.number, answer, reason))
        return True

    def take_commands(self) -> list[commands.Confirm | commands.Reject]:
        """The commands for the answers since the last call. One Confirm covers all before the oldest in hand."""
        answered, self._answered = self._answered, deque()
        confirmed = sorted(number for number, answer, _ in answered if answer is ConsumerAnswer.CONFIRM)
        taken: list[commands.Confirm | commands.Reject] = [
            commands.Reject(number, multiple=False, recycle=answer is ConsumerAnswer.RECYCLE, reason=reason)
            for number, answer, reason in answered
            if answer is not ConsumerAnswer.CONFIRM
        ]
        oldest = next(iter(self._hand), None)  # a Confirm(multiple) must not cover contents in hand
        together = [n for n in confirmed if oldest is None or n < oldest]
        if together:
            taken.append(commands.Confirm(together[-1], multiple=True))
        taken += [commands.Confirm(n, multiple=False) for n in confirmed[len(together) :]]
        return taken

    def lost(self) -> None:
        """The data flow has ended; the contents in hand are in the queue again."""
        self.life += 1
        self._hand.clear()
        self._answered.clear()
