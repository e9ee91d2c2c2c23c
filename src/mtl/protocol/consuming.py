"""The consuming client's side of a data flow in a queue: what is in hand, and what to answer. Sans IO.

PROTOCOL.md 6. The content sequence is a delivery number of the lease; a flow that was lost took everything back to the
queue, so what was in hand belongs to an older `life`, and answers to it mean nothing any more: it comes again, to this
consumer or another, with a mark.

    received ──► in hand ──answer──► commands: one Confirm(multiple) for the oldest in hand, single ones for the others
"""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import NamedTuple

from mtl.wire import commands as c
from mtl.wire.fields import decode_table


class Answer(Enum):
    """What a consumer says about a content: done; never again (to the dead letters); again later."""

    CONFIRM = "confirm"
    REJECT = "reject"
    RECYCLE = "recycle"


class Hand(NamedTuple):
    """A content in hand: the life of the flow and the number it came with, its position, and whether it may have been
    delivered before.
    """

    life: int
    number: int
    position: int
    again: bool


class ConsumerFlow:
    """Everything a consumer knows about its contents. Without `confirm` nothing is answered or remembered."""

    __slots__ = ("_answered", "_hand", "confirm", "life")

    def __init__(self, *, confirm: bool = True) -> None:
        self.confirm = confirm
        self.life = 0
        self._hand: dict[int, None] = {}
        self._answered: deque[tuple[int, Answer, str]] = deque()

    def __len__(self) -> int:
        """How many contents are in hand."""
        return len(self._hand)

    def received(self, content: c.Content) -> Hand:
        """A Content arrived. A server that tells no position has its number instead."""
        if self.confirm:
            self._hand[content.sequence] = None
        table = decode_table(content.properties) if b"mtl-" in content.properties else {}
        position = table.get(c.SEQUENCE)
        place = position if type(position) is int else content.sequence
        return Hand(self.life, content.sequence, place, table.get(c.REDELIVERED) is True)

    def answer(self, hand: Hand, answer: Answer, reason: str = "") -> bool:
        """What the application says about a content, a rejection with its `reason`; False when the content is not in
        hand (any more).
        """
        if hand.life != self.life or hand.number not in self._hand:
            return False
        del self._hand[hand.number]
        self._answered.append((hand.number, answer, reason))
        return True

    def commands(self) -> list[c.Confirm | c.Reject]:
        """What is to be sent for the answers since the last call: contents that were confirmed in a row go together."""
        answered, self._answered = self._answered, deque()
        confirmed = sorted(number for number, answer, _ in answered if answer is Answer.CONFIRM)
        commands: list[c.Confirm | c.Reject] = [
            c.Reject(number, multiple=False, recycle=answer is Answer.RECYCLE, reason=reason)
            for number, answer, reason in answered
            if answer is not Answer.CONFIRM
        ]
        oldest = next(iter(self._hand), None)  # a Confirm(multiple) must not cover what is in hand still
        together = [n for n in confirmed if oldest is None or n < oldest]
        if together:
            commands.append(c.Confirm(together[-1], multiple=True))
        commands += [c.Confirm(n, multiple=False) for n in confirmed[len(together) :]]
        return commands

    def lost(self) -> None:
        """The data flow is gone; what was in hand went back to the queue."""
        self.life += 1
        self._hand.clear()
        self._answered.clear()
