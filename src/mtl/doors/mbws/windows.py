"""Sequence numbers of one direction: they are not sent, both sides count from 1 (MBWS-15 to 17)."""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

from mtl.errors import Malformed

T = TypeVar("T")


class Outgoing(Generic[T]):
    """Unacknowledged messages: an entry for each, with the sender's data for a repetition."""

    def __init__(self, window: int) -> None:
        self.window = window
        self.acked = 0
        self.entries: deque[T] = deque()

    @property
    def sent(self) -> int:
        """The number of the last message."""
        return self.acked + len(self.entries)

    @property
    def room(self) -> int:
        """How many more may be sent."""
        return self.window - len(self.entries)

    @property
    def bounds(self) -> tuple[int, int]:
        """The numbers for a reconnect: the first and the last retained message (CSLW, CSUW); 1, 0 without any."""
        return self.acked + 1, self.sent

    def send(self, *entries: T) -> None:
        """Add sent messages. Only within `room`."""
        assert len(entries) <= self.room
        self.entries.extend(entries)

    def acknowledged(self, sequence: int) -> list[T]:
        """The entries that an acknowledgement settles: all up to its number; an older one settles nothing.

        Raises `Malformed` for the number of a message that was not sent.
        """
        if sequence > self.sent:
            raise Malformed(f"message {sequence} is acknowledged, {self.sent} is the last that was sent")
        settled = [self.entries.popleft() for _ in range(sequence - self.acked)]
        self.acked = max(self.acked, sequence)
        return settled

    def can_resume_after(self, sequence: int) -> bool:
        """Whether the message after this one is retained, or is the next to be sent (MBWS-27)."""
        return self.acked <= sequence <= self.sent

    def rewind(self, sequence: int) -> list[T]:
        """Continue after this message: messages up to it count as acknowledged, later ones as never sent.

        Returns the entries of the later ones. Only if `can_resume_after` it.
        """
        assert self.can_resume_after(sequence)
        self.acknowledged(sequence)
        unsent = list(self.entries)
        self.entries.clear()
        return unsent
