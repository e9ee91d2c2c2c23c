"""A reader's side in the IO thread: it keeps the queue of deliveries filled, and the lease alive.

The application's side (`mtl.client.reader`) takes from `queue` and says in `finished` how far it is; both are plain
attributes that one side writes and the other reads.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from mtl.client.control import Call, Channel, Outcome
from mtl.client.flow import Flow, State
from mtl.client.io import Loop, Timer
from mtl.client.notice import Notice
from mtl.errors import Closed, DataLoss, Malformed, MtlError, NotGranted, Refused
from mtl.net.machine import machine_mark
from mtl.protocol.reading import Delivery, Gap, ReaderFlow, Run
from mtl.wire import commands as c
from mtl.wire import control as w
from mtl.wire.fields import Buffer

log = logging.getLogger("mtl.client")

Start = Literal["earliest", "latest", "group"] | int


@dataclass(frozen=True, slots=True)
class ReaderOptions:
    """What a reader asks for; see `Connection.reader`."""

    resource: str
    start: Start
    until: int | None
    group: str | None
    holder: str | None
    epoch: int | None
    packed: bool
    window_contents: int
    window_bytes: int
    incarnation: str | None
    skip_lost: bool
    extended: bool
    """Whether the profile is one of ours, with members beyond the RFC's."""
    confirm: str = "full"
    local: bool = False
    """Whether large packs may be told by their place in the broker's files."""


class Feed(Notice):
    """See the module."""

    def __init__(self, loop: Loop, channel: Channel, options: ReaderOptions) -> None:
        super().__init__()
        self.options = options
        self.queue: deque[Delivery | Run] = deque()
        self.granted_event = threading.Event()
        self.lease: w.DataLease | None = None
        self.error: MtlError | None = None
        self.ended = False
        self.finished = 0
        self.lost: list[Gap] = []
        """Ranges that were gone, with `skip_lost`."""
        self.local = options.local
        """Packs may come by their place; never again after `send_instead`."""
        self.flow = Flow(loop, channel, self)
        self._loop = loop
        self._channel = channel
        start = options.start if isinstance(options.start, int) else None
        self._reader = ReaderFlow(start, options.until, packed=options.packed)
        self._incarnation = options.incarnation
        self._epoch = options.epoch
        self._arrived: list[Delivery | Run] = []
        self._summoned = False
        self._confirmed = 0
        self._credit_timer: Timer | None = None

    # --- posted by the application's side -------------------------------------------------------------------

    def summon(self) -> None:
        """The application wants contents."""
        if not self._summoned:
            self._summoned = True
            self.flow.ask(c.Summon, self.options.resource)

    def credit(self) -> None:
        """The application is done with what is below `finished`: Confirm it when that is worth it."""
        self._credit_timer = None
        self._reader.finish(self.finished)
        if self.options.confirm == "none":
            return
        now = self._loop.clock()
        confirm = self._reader.credit(now, idle=True)
        if confirm is not None:
            self.flow.send(confirm)
        elif self._reader.owes:
            self._later()

    def confirm(self, sequence: int) -> None:
        """Confirm up to `sequence` now, whether it was delivered or not."""
        if sequence > self._confirmed:
            self._confirmed = sequence
            self.flow.send(self._reader.confirm(sequence, self._loop.clock()))

    def send_instead(self, first: int) -> None:
        """The application cannot read packs where they lie: ask for the octets of everything from `first` on."""
        self.local = self.ended = False
        self.queue.clear()
        self._arrived.clear()
        self._reader.restart(first)
        self.flow.restart()

    def _later(self) -> None:
        if self._credit_timer is None:
            delay = max(0.0, self._reader.credit_at - self._loop.clock())
            self._credit_timer = self._loop.after(delay, self.credit)

    # --- the flow's user ------------------------------------------------------------------------------------

    def lease_request(self) -> w.Reader:
        """Ask for the range that is left, with everything that a `log` broker must echo.

        What a holder confirmed and never wanted to read is done with, and may be gone.
        """
        o = self.options
        if not o.extended:
            return w.Reader(resources=[o.resource], confirm=o.confirm)
        if self._confirmed and not self._summoned:
            self._reader.restart(max(self._reader.next or 0, self._confirmed + 1))
        return w.Reader(
            resources=[o.resource],
            confirm=o.confirm,
            from_=o.start if self._reader.next is None else self._reader.next,
            until=o.until,
            window=w.Window(contents=o.window_contents, bytes=o.window_bytes),
            packed=o.packed,
            group=o.group,
            holder=o.holder,
            epoch=self._epoch,
            incarnation=self._incarnation,
            local=machine_mark() if self.local else None,
        )

    def granted(self, lease: w.DataLease) -> None:
        """Check the echo, which is the only negotiation there is (PROTOCOL.md 5.2)."""
        gap = None
        if self.options.extended:
            window = self._check(lease)
            gap = self._reader.granted(lease.from_, window.contents or 0, window.bytes or 0)
            self._incarnation = lease.incarnation or self._incarnation
            self._epoch = lease.epoch if self.options.group is not None else self._epoch
        if gap is not None:
            self._missing(gap.first, gap.end)
        self.lease = lease
        self.granted_event.set()
        self._check_end()

    def _check(self, lease: w.DataLease) -> w.Window:
        o, endpoint = self.options, self._channel.settings.endpoint
        if lease.from_ is None:
            raise NotGranted(endpoint, "from")
        if o.packed and not lease.packed:
            raise NotGranted(endpoint, "packed")
        if lease.until != o.until:
            raise NotGranted(endpoint, "until")
        if o.group is not None and lease.epoch is None:
            raise NotGranted(endpoint, "group")
        if o.confirm == "none":
            return w.Window()
        if lease.window is None or not lease.window.contents or not lease.window.bytes:
            raise NotGranted(endpoint, "window")
        return lease.window

    def refused(self, error: Refused) -> Refused | None:
        """Contents that are gone are skipped if the application said so; everything else is the end."""
        o, place = self.options, self._reader.next
        if isinstance(error, DataLoss) and o.skip_lost and error.first == place and error.end > error.first:
            self._missing(error.first, error.end)
            return None
        if error.reason == w.INCARNATION and self.lease is not None and place is not None:
            return DataLoss(o.resource, place, place, f"{error.message} (reading was at {place})")
        return error

    def bound(self) -> None:
        """Begin, or go on: what was confirmed may have been lost with the old connection."""
        if not self.options.extended:
            self._reader = ReaderFlow(None)  # its sequences are delivery numbers, and begin again
        if self._confirmed:
            self.flow.send(c.Confirm(self._confirmed, multiple=True))
        if self._summoned:
            self.flow.ask(c.Summon, self.options.resource)

    def answered(self, asked: c.Summon | c.Dismiss, ok: bool) -> None:
        """A resource that cannot be summoned is gone; asking for the lease again tells what happened."""
        if not ok and isinstance(asked, c.Summon):
            self.failed(Refused(400, "summon", f"the broker does not send contents of {asked.resource!r}"))

    def command(self, command: c.Content | c.Confirm | c.Reject) -> None:
        """A Content arrived."""
        if not isinstance(command, c.Content):
            return
        try:
            meaning = self._reader.received(command)
        except Malformed:
            return
        if isinstance(meaning, Delivery):
            self._arrived.append(meaning)
        elif isinstance(meaning, Gap):
            self._explain(meaning)
        elif self._reader.owes:
            self._later()

    def contents(self, like: c.Content, first: int, bodies: Sequence[Buffer]) -> int:
        """Contents that are like one before them arrived."""
        run = self._reader.received_run(like, first, bodies)
        if run is None:
            return 0
        self._arrived.append(run)
        return len(run.bodies)

    def drained(self) -> None:
        """Hand over what arrived, all at once."""
        if self._arrived:
            self.queue.extend(self._arrived)
            self._arrived.clear()
            self.notify()
            self._check_end()

    def writable(self) -> None:
        """Nothing of a reader waits for room but the flow's own queue."""

    def down(self) -> None:
        """What was delivered stays; the rest comes again."""
        self._reader.lost()

    def failed(self, error: MtlError) -> None:
        """Tell the application, after what was delivered before."""
        if self.error is None:
            self.error = error
        self.granted_event.set()
        self.notify()

    # --- gaps and the end -----------------------------------------------------------------------------------

    def _explain(self, gap: Gap) -> None:
        """Contents are missing: retention or the transport? (PROTOCOL.md 5.2)."""

        def described(outcome: Outcome) -> None:
            if self.error is not None or self.ended:
                return
            if isinstance(outcome, w.Resources) and outcome.resources:
                earliest = outcome.resources[0].earliest
                try:
                    if earliest > gap.first:
                        self._missing(gap.first, min(earliest, gap.end))
                except DataLoss as loss:
                    self._stop(loss)
                else:
                    self.flow.restart()
            else:
                self._stop(outcome if isinstance(outcome, MtlError) else Malformed("an empty description"))

        self._channel.submit(Call(w.ResourceDescribe(resource=self.options.resource), described))

    def _missing(self, first: int, end: int) -> None:
        """Contents [first, end) are gone for good: skip them, or raise `DataLoss`."""
        if not self.options.skip_lost:
            raise DataLoss(self.options.resource, first, end)
        log.warning(
            "resource %r: contents %d to %d are gone and skipped", self.options.resource, first, end - 1
        )
        self.lost.append(Gap(first, end))
        self._reader.restart(end)

    def _stop(self, error: MtlError) -> None:
        self.flow.close(lambda _: None)
        self.failed(error)

    def _check_end(self) -> None:
        if self._reader.ended and not self.ended:
            self.ended = True
            self.notify()

    # --- closing --------------------------------------------------------------------------------------------

    def close(self, then: Callable[[Outcome], None], *, within: float) -> None:
        """End the lease; after a Confirm of the application only when that was taken in."""

        def end() -> None:
            timer.cancel()
            self.flow.close(then, within=within)
            self.failed(Closed("the reader is closed"))

        timer = self._loop.after(within, end)
        if self._confirmed and self.flow.state is State.BOUND:
            self.flow.ping(end)
        else:
            end()

    @property
    def start(self) -> int | None:
        """Where reading begins or, after losses, goes on; None while that is not known."""
        return self._reader.next
