"""The writing client's side of a data flow: numbers, window, confirmation, sending again. Sans IO.

RFC 11 "Content Confirmation"; PROTOCOL.md 5.4. A writer outlives its data flows: contents that are not confirmed are
sent again, in order and in identical frames, on every new flow. Time is an argument, in monotonic seconds.

    publish ──► unsent ──take──► on the flow ──Confirm──► settled
                  ▲                   │ └─────Reject──► refused for good: recorded, its number is spent
                  └──Reject(recycle)──┘ go back N: everything that is not settled, and so does `lost`
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from mtl.errors import LocalError
from mtl.protocol.backoff import Backoff
from mtl.protocol.limits import RESEND_DELAY_S, RESEND_DELAY_TOP_S
from mtl.protocol.settlement import Sent, Unsettled
from mtl.wire import commands
from mtl.wire.fields import Buffer


class RefusedContent(NamedTuple):
    """Numbers first..last, published to `resource`, that the broker rejected for good."""

    resource: str
    first: int
    last: int


class WriterFlow:
    """A writer's unsettled contents and their numbers (`log`: from 1, +1 per content; a pack takes one per content).

    `window_contents` and `window_octets` bound the unsettled contents. When there are none, one Content always fits;
    otherwise one larger than the window would never be sent. Without `confirm` (confirm "none") no Content is kept
    after `pop_unsent`.
    """

    __slots__ = (
        "_backoff",
        "_held_until",
        "_sent",
        "_spent",
        "_unsent",
        "_unsettled",
        "confirm",
        "next",
        "progressed",
        "refused",
        "window_contents",
        "window_octets",
    )

    def __init__(self, window_contents: int, window_octets: int, *, confirm: bool = True) -> None:
        self.window_contents = window_contents
        self.window_octets = window_octets
        self.confirm = confirm
        self.next = 1
        self.refused: deque[RefusedContent] = deque()
        self.progressed = 0
        """Number of Contents settled so far. While it grows, the broker is working, and a caller continues to
        wait."""
        self._unsettled: Unsettled[commands.Content] = Unsettled()
        self._unsent: deque[Sent[commands.Content]] = deque()
        self._spent: list[Sent[commands.Content]] = []
        self._sent = 0
        self._backoff = Backoff(RESEND_DELAY_S, RESEND_DELAY_TOP_S)
        self._held_until = 0.0

    def start(self, number: int) -> None:
        """Begin with `number`: lower numbers belong to an earlier writer of the same name."""
        if self._unsettled or self.next != self._sent + 1:
            raise LocalError("a writer's first number is set before it publishes anything")
        self.next = number
        self._sent = number - 1

    def missing(self, last: int) -> tuple[int, int] | None:
        """The settled numbers [first, end) that a broker whose highest number is `last` has lost; None when there are
        none. The broker would wait for them without end: this writer has dropped their contents.
        """
        oldest = self._unsent[0].first if self._unsent else self.next
        return (last + 1, oldest) if oldest > last + 1 else None

    # --- the application's side -----------------------------------------------------------------------------

    @property
    def unconfirmed(self) -> int:
        """Contents that are published and not settled; under confirm "none", not sent."""
        return self._unsettled.contents

    @property
    def octets(self) -> int:
        """Octets of the same."""
        return self._unsettled.octets

    @property
    def confirmed(self) -> int:
        """The highest number up to which everything is settled."""
        for sent in self._unsettled:
            return sent.first - 1
        return self.next - 1

    @property
    def sent_back(self) -> bool:
        """Whether the broker's last answer to contents on this flow was a request to send them again."""
        return self._backoff.attempts > 0

    def room(self, count: int, size: int) -> bool:
        """Whether the window takes a Content of `count` contents and `size` octets now."""
        return self.fits(self._unsettled.contents, self._unsettled.octets, count, size)

    def fits(self, contents: int, octets: int, count: int, size: int) -> bool:
        """Whether the window takes `count` contents of `size` octets when it holds `contents` of `octets`."""
        return not contents or (
            contents + count <= self.window_contents and octets + size <= self.window_octets
        )

    def publish(
        self, resource: str, properties: bytes, body: Buffer, count: int = 1, size: int | None = None
    ) -> commands.Content:
        """Give a Content its number and queue it. The caller checks `room` before. Its `size` in the window is by
        default that of body and properties.
        """
        first = self.next
        self.next = after = first + count
        content = commands.Content(first, resource, properties, body)
        sent = Sent(first, after - 1, len(body) + len(properties) if size is None else size, content)
        self._unsettled.add(sent)
        self._unsent.append(sent)
        return content

    # --- the flow's side ------------------------------------------------------------------------------------

    @property
    def waiting(self) -> int:
        """The number of Contents to be sent."""
        return len(self._unsent)

    @property
    def sent(self) -> int:
        """The highest number up to which everything was given to the flow."""
        return self._unsent[0].first - 1 if self._unsent else self.next - 1

    @property
    def due(self) -> float | None:
        """The time from which `pop_unsent` returns Contents; None when there is nothing to send."""
        return self._held_until if self._unsent else None

    def pop_unsent(self, now: float, most: int) -> list[Sent[commands.Content]]:
        """Up to `most` Contents to send now, in order. Give those that the socket does not accept to `push_unsent`."""
        unsent = self._unsent
        if not unsent or now < self._held_until:
            return []
        contents = [unsent.popleft() for _ in range(min(most, len(unsent)))]
        self._sent = max(self._sent, contents[-1].last)
        if not self.confirm:
            self._unsettled.settle(contents[-1].last, multiple=True)
        return contents

    def push_unsent(self, sent: Sequence[Sent[commands.Content]]) -> None:
        """Put back Contents of `pop_unsent` that could not be sent, in order."""
        self._unsent.extendleft(reversed(sent))
        if not self.confirm:
            self._unsettled = Unsettled()
            for sent_content in self._unsent:
                self._unsettled.add(sent_content)

    def received(
        self, command: commands.Confirm | commands.Reject, now: float
    ) -> Sequence[Sent[commands.Content]]:
        """Apply the broker's Confirm or Reject and return the settled Contents. Invalid ones change nothing."""
        if isinstance(command, commands.Reject) and command.recycle:
            self._resend_unsettled(command.sequence, now)
            return ()
        if command.sequence > self._sent:
            return ()  # never sent, so it covers nothing (MTL-93, MTL-98)
        settled = self._unsettled.settle(command.sequence, command.multiple)
        if not settled:
            return ()
        self.progressed += len(settled)
        self._backoff.succeeded()
        if isinstance(command, commands.Reject):
            self.refused += [RefusedContent(x.item.resource, x.first, x.last) for x in settled]
            # After a crash of the broker a new flow may expect these numbers again: they are sent and rejected again.
            self._spent += settled
        elif self._spent:
            self._spent = [x for x in self._spent if x.last > settled[-1].last]
        self._drop_settled()
        return settled

    def lost(self) -> None:
        """The data flow has ended, and the Contents under way are lost: all unsettled ones will be sent again.

        This includes Contents up to the `last` of a 202: a Reject below it may be lost, and the broker repeats a
        Reject only when the Content is sent again.
        """
        if self.confirm:
            self._send_again(0)
        self._held_until = 0.0
        self._backoff.succeeded()

    # --- inside ---------------------------------------------------------------------------------------------

    def _resend_unsettled(self, sequence: int, now: float) -> None:
        """Send everything unsettled again, unless it already waits for that (PROTOCOL.md 5.4).

        `sequence` is the number that the broker could not take. After a gap it is not the missing number, so everything
        after the last Confirm is sent again.
        """
        oldest = next(iter(self._unsettled), None)
        if oldest is None or not self.confirm or not oldest.first <= sequence <= self._sent:
            return
        if self._unsent and self._unsent[0].first <= oldest.first:
            return
        self._send_again(oldest.first)
        self._held_until = now + self._backoff.failed()

    def _send_again(self, begin: int) -> None:
        again = [x for x in self._unsettled if x.last >= begin]
        spent = [x for x in self._spent if x.last >= begin]
        self._unsent = deque(sorted(again + spent, key=lambda sent: sent.first) if spent else again)

    def _drop_settled(self) -> None:
        """Do not send Contents again that were confirmed while they waited; rejected ones have to be sent."""
        confirmed = self.confirmed
        while self._unsent and self._unsent[0].last <= confirmed and self._unsent[0] not in self._spent:
            self._unsent.popleft()
