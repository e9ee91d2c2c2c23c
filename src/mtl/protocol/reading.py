"""The reading client's side of a data flow: order, gaps, the end of the range, credit. Sans IO.

PROTOCOL.md 5.2, for the `log` profile: a content's sequence is its position in the resource's log. A reader
outlives its data flows: contents that a new flow delivers again are dropped, and missing ones are detected.

    received ──► Delivery (trimmed) ──► the application ──finish──► credit ──► Confirm(multiple)
          └────► Gap: contents are missing; the caller asks Describe, and begins a new flow with `restart`
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import accumulate, takewhile
from typing import NamedTuple

from mtl.errors import Malformed
from mtl.limits import CREDIT_DELAY_S
from mtl.wire import commands
from mtl.wire.fields import Buffer
from mtl.wire.ranges import FileRange


class Delivery(NamedTuple):
    """Contents [first, end) for the application: all of `content`, or the rest of a pack after the first `skip`.

    `size` counts in the window: the octets of the body, 0 when the body is in `file_range`.
    """

    first: int
    end: int
    skip: int
    content: commands.Content
    file_range: FileRange | None
    size: int


class PlainRun(NamedTuple):
    """Plain contents [first, end) that differ from one before them, `like`, in nothing but their bodies."""

    first: int
    end: int
    like: commands.Content
    bodies: Sequence[Buffer]
    size: int


class Gap(NamedTuple):
    """Contents [first, end) were skipped: retention removed them, or the transport lost them."""

    first: int
    end: int


class _Outstanding(NamedTuple):
    end: int
    last: int
    size: int
    contents: int

    def below(self, sequence: int) -> tuple[_Outstanding, _Outstanding] | None:
        """A run of plain contents divided at `sequence`; None when all of it lies above."""
        contents = sequence - (self.end - self.contents)
        if contents <= 0:
            return None
        size = self.size * contents // self.contents
        rest = self._replace(size=self.size - size, contents=self.contents - contents)
        return _Outstanding(sequence, sequence - 1, size, contents), rest


_SHARE = 4
"""Parts of a window: a run has at most one part, so that credit is given part by part."""


class ReaderFlow:
    """A reader's position, window and credit in one resource.

    `next` is the next sequence to deliver (None: that of the first content, where sequences are delivery numbers); the
    range ends before `until`. The window is the one that the broker granted.
    """

    __slots__ = (
        "_confirmable",
        "_confirmed_at",
        "_done_contents",
        "_done_octets",
        "_outstanding",
        "finished",
        "gap",
        "next",
        "packed",
        "until",
        "window_contents",
        "window_octets",
    )

    def __init__(self, start: int | None, until: int | None = None, *, packed: bool = False) -> None:
        self.next = start
        self.until = until
        self.packed = packed
        self.window_contents = 0
        self.window_octets = 0
        self.finished = start or 1
        """The application has finished all contents below this sequence."""
        self.gap: Gap | None = None
        self._outstanding: deque[_Outstanding] = deque()
        self._confirmable = 0
        self._done_contents = 0
        self._done_octets = 0
        self._confirmed_at = 0.0

    @property
    def ended(self) -> bool:
        """Whether everything before `until` was delivered."""
        return self.until is not None and self.next is not None and self.next >= self.until

    def granted(self, start: int | None, window_contents: int, window_octets: int) -> Gap | None:
        """A lease begins at `start`. Returns a gap when that is above `next`.

        The first lease resolves a start such as "latest". Later ones never set the reader back.
        """
        self.window_contents, self.window_octets = window_contents, window_octets
        self.gap = None
        if start is None:
            return None
        if self.next is None:
            self.next = self.finished = start
        elif start > self.next:
            self.gap = Gap(self.next, start)
        return self.gap

    def restart(self, at: int) -> None:
        """Continue at `at`: the contents before it are known to be lost. If `at` is below `next`, contents
        delivered from there on are of another copy of the log and are not confirmed any more.
        """
        if self.next is not None and at < self.next:
            self.finished = min(self.finished, at)
            self._outstanding.clear()
            self._confirmable = self._done_contents = self._done_octets = 0
        self.next = at
        self.gap = None

    def lost(self) -> None:
        """The data flow has ended, and its last Confirms may be lost. Delivered contents stay delivered."""
        self.gap = None

    def received(self, content: commands.Content) -> Delivery | Gap | None:
        """A Content arrived. Returns contents to deliver, a gap, or None (delivered before, or past the end).

        After a gap no content is delivered until `restart` or `granted`. Malformed for a pack without contents, or
        with an incomplete file range.
        """
        first = content.sequence
        count = (commands.packed_count(content.properties) or 1) if self.packed else 1
        last = first + count - 1
        expected = first if self.next is None else self.next
        if first < 1:
            raise Malformed(f"a content with the sequence {first}")
        if self.gap is not None:
            return None
        size = memoryview(content.body).nbytes
        file_range = FileRange.of(content.properties) if self.packed and not size else None
        if last < expected:
            self._note_repeated(last, size, count)
            return None
        if first > expected:
            if self.until is not None and expected >= self.until:
                return None
            self.gap = Gap(expected, first)
            return self.gap
        end = last + 1 if self.until is None else min(last + 1, self.until)
        if end <= expected:
            return None
        self.next = end
        self._outstanding.append(_Outstanding(end, last, size, count))
        return Delivery(expected, end, expected - first, content, file_range, size)

    def received_run(self, like: commands.Content, first: int, bodies: Sequence[Buffer]) -> PlainRun | None:
        """Contents from `first` on arrived that differ from a delivered one in nothing but their bodies. Returns as
        many as one run may have (a quarter of the window), or None when each has to be given to `received`.
        """
        if self.packed or self.gap is not None or first != self.next:
            return None
        most = max(1, self.window_contents // _SHARE) if self.window_contents else len(bodies)
        if self.until is not None:
            most = min(most, self.until - first)
        ends = accumulate(map(len, bodies[:most]))
        room = max(self.window_octets // _SHARE, len(bodies[0])) if self.window_octets else None
        sizes = list(ends if room is None else takewhile(room.__ge__, ends))
        if not sizes:
            return None
        self.next = end = first + len(sizes)
        self._outstanding.append(_Outstanding(end, end - 1, sizes[-1], len(sizes)))
        return PlainRun(first, end, like, bodies[: len(sizes)], sizes[-1])

    def finish(self, below: int) -> None:
        """The application has finished every content below `below`."""
        if below <= self.finished:
            return
        self.finished = below
        outstanding = self._outstanding
        while outstanding and outstanding[0].end <= below:
            self._note_finished(outstanding.popleft())
        if outstanding and not self.packed and (part := outstanding[0].below(below)) is not None:
            done, outstanding[0] = part
            self._note_finished(done)

    def _note_finished(self, done: _Outstanding) -> None:
        self._confirmable = max(self._confirmable, done.last)
        self._done_octets += done.size
        self._done_contents += done.contents

    def credit(self, now: float, *, idle: bool = False) -> commands.Confirm | None:
        """The Confirm that is due, or None. It is due when half of the window is finished, or when the application
        waits (`idle`) and `credit_at` is reached.
        """
        if not self._done_contents:
            return None
        half = self._done_octets * 2 >= self.window_octets or self._done_contents * 2 >= self.window_contents
        if not half and not (idle and now >= self.credit_at):
            return None
        return self.confirm(self._confirmable, now)

    @property
    def credit_at(self) -> float:
        """The time from which an idle reader may confirm finished contents."""
        return self._confirmed_at + CREDIT_DELAY_S

    @property
    def owes(self) -> bool:
        """Whether there are finished contents that are not confirmed."""
        return self._done_contents > 0

    def confirm(self, sequence: int, now: float) -> commands.Confirm:
        """Confirm all contents up to `sequence` at once."""
        self.finish(sequence + 1)
        if sequence >= self._confirmable:
            self._done_contents = self._done_octets = 0
        self._confirmed_at = now
        return commands.Confirm(sequence, multiple=True)

    def _note_repeated(self, last: int, size: int, count: int) -> None:
        """A Content was delivered before. If the application has finished it, its Confirm was lost and is due again."""
        if last < self.finished:
            self._confirmable = max(self._confirmable, last)
            self._done_octets += size
            self._done_contents += count
