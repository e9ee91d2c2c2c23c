"""Sequence numbers and acknowledgements of one direction: from 1, after 65535 comes 1 again (MM2-37, MM2-66).

Both ends count, so a number alone has no meaning: `OutgoingWindow` knows which are outstanding, `IncomingWindow`
which is next. `window` None: nothing is acknowledged (MM2-04).
"""

from __future__ import annotations

from mtl.doors.micromessage.codec import LAST_SEQUENCE
from mtl.errors import Malformed


def after(sequence: int, steps: int = 1) -> int:
    """The number `steps` after this one; 0 stands before the first."""
    return (sequence + steps - 1) % LAST_SEQUENCE + 1


def distance(earlier: int, later: int) -> int:
    """How many steps lead from one to the other, 0 .. 65534."""
    return (later - earlier) % LAST_SEQUENCE


class OutgoingWindow:
    """Sent, unacknowledged messages: at most `window` (MM2-06)."""

    __slots__ = ("_acked", "outstanding", "window")

    def __init__(self, window: int | None) -> None:
        self.window = window
        self.outstanding = 0
        self._acked = 0

    @property
    def room(self) -> bool:
        """Whether one more may be sent."""
        return self.window is None or self.outstanding < self.window

    def send(self) -> int:
        """The number of the next message. Only where there is room."""
        assert self.room
        if self.window is None:
            self._acked = after(self._acked)  # there are no acknowledgements
            return self._acked
        self.outstanding += 1
        return after(self._acked, self.outstanding)

    def acked(self, sequence: int) -> int:
        """How many more an acknowledgement settles: all up to its number, also across the wrap (MM2-48).

        A repeated acknowledgement settles nothing. Raises `Malformed` for a number that was not sent.
        """
        count = distance(self._acked, sequence)
        if not 1 <= sequence <= LAST_SEQUENCE or count > self.outstanding:
            raise Malformed(f"an acknowledgement of {sequence}, which is not outstanding")
        if count:
            self.outstanding -= count
            self._acked = sequence
        return count


class IncomingWindow:
    """Received messages that this side has not acknowledged."""

    __slots__ = ("_last", "unacked", "window")

    def __init__(self, window: int | None) -> None:
        self.window = window
        self.unacked = 0
        self._last = 0

    def received(self, sequence: int) -> None:
        """Count a message. Raises `Malformed` if it is not the next one, or exceeds the window (MM2-06)."""
        if sequence != after(self._last):
            raise Malformed(f"message {sequence} came, {after(self._last)} is next")
        if self.window is not None:
            if self.unacked == self.window:
                raise Malformed(f"{self.window} messages without acknowledgement were agreed on, no more")
            self.unacked += 1
        self._last = sequence

    def ack(self, count: int) -> int | None:
        """The number that acknowledges the first `count` unacknowledged messages; None: none has to be sent."""
        if self.window is None or not count:
            return None
        assert count <= self.unacked
        self.unacked -= count
        return (self._last - self.unacked - 1) % LAST_SEQUENCE + 1
