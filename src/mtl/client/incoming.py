"""What every reader's side in the IO thread has in common: the queue of deliveries, the Summon, the lease's life.

The application's side (`mtl.client.reader`) takes from `queue`. `Feed` reads a log by positions, `RfcFeed` reads from a
server that knows the RFC only.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

from mtl.client.control import Channel, Outcome
from mtl.client.flow import Flow
from mtl.client.io import Loop
from mtl.client.notice import Notice
from mtl.errors import Closed, MtlError, Refused
from mtl.limits import CREDIT_DELAY_S
from mtl.protocol.reading import Delivery, Gap, Run
from mtl.wire import commands as c
from mtl.wire import control as w

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
    confirm: str = "full"
    log_epoch: str | None = None
    """The epoch of the content before `start`."""
    until_epoch: str | None = None
    """The epoch of the content before `until`, when all of the range was there before."""
    local: bool = False
    """Whether large packs may be told by their place in the broker's files."""


class Incoming(Notice, ABC):
    """See the module. Subclasses are the users of `flow`."""

    rfc: ClassVar[bool] = False
    """Whether the server is asked for nothing that the RFC does not have."""
    credit_delay_s: ClassVar[float] = CREDIT_DELAY_S
    """How long a reader that waits for contents keeps back what it has finished."""

    def __init__(self, loop: Loop, channel: Channel, options: ReaderOptions) -> None:
        super().__init__()
        self.options = options
        self.queue: deque[Delivery | Run] = deque()
        self.granted_event = threading.Event()
        self.lease: w.DataLease | None = None
        self.error: MtlError | None = None
        self.ended = False
        self.lost: list[Gap] = []
        """Ranges that were gone, with `skip_lost`."""
        self.local = options.local
        """Packs may come by their place; never again after `send_instead`."""
        self.flow = Flow(loop, channel, self, rfc=self.rfc)  # type: ignore[arg-type]  # the rest is the subclasses'
        self._loop = loop
        self._channel = channel
        self._arrived: list[Delivery | Run] = []
        self._summoned = False

    # --- for the application's side -------------------------------------------------------------------------

    @property
    def start(self) -> int | None:
        """Where reading begins or, after losses, goes on; None while that is not known."""
        return None

    def log_epoch(self, position: int | None) -> str | None:  # noqa: ARG002 only a log has epochs
        """The epoch of the content before a position that reading led to, as far as it is known."""
        return None

    @abstractmethod
    def finish(self, done: Delivery | Run) -> None:
        """The application is done with these; `credit` tells the server. Called in the application's thread."""

    @abstractmethod
    def credit(self) -> None:
        """Confirm what is finished, when that is worth it."""

    @abstractmethod
    def confirm(self, sequence: int, epoch: str | None = None) -> None:
        """Confirm up to `sequence` now."""

    def send_instead(self, first: int) -> None:
        """Packs cannot be read where they lie: ask for the octets of everything from `first` on. Only a broker of ours
        tells places; others send all octets as it is.
        """

    def summon(self) -> None:
        """The application wants contents."""
        if not self._summoned:
            self._summoned = True
            self.flow.ask(c.Summon, self.options.resource)

    # --- the flow's user ------------------------------------------------------------------------------------

    def answered(self, asked: c.Summon | c.Dismiss, ok: bool) -> None:
        """A resource that cannot be summoned is gone; asking for the lease again tells what happened."""
        if not ok and isinstance(asked, c.Summon):
            self.failed(Refused(400, "summon", f"the broker does not send contents of {asked.resource!r}"))

    def drained(self) -> None:
        """Hand over what arrived, all at once."""
        if self._arrived:
            self.queue.extend(self._arrived)
            self._arrived.clear()
            self.notify()
            self._check_end()

    def _check_end(self) -> None:
        """Note whether the range has ended."""

    def writable(self) -> None:
        """Nothing of a reader waits for room but the flow's own queue."""

    def failed(self, error: MtlError) -> None:
        """Tell the application, after what was delivered before."""
        if self.error is None:
            self.error = error
        self.granted_event.set()
        self.notify()

    # --- closing --------------------------------------------------------------------------------------------

    def close(self, then: Callable[[Outcome], None], *, within: float) -> None:
        """End the lease; after a Confirm of the application only when that was taken in."""

        def end(_position: int | None = None) -> None:
            timer.cancel()
            self.flow.close(then, within=within)
            self.failed(Closed("the reader is closed"))

        timer = self._loop.after(within, end)
        if self._unheard():
            self.flow.ping(end)
        else:
            end()

    @abstractmethod
    def _unheard(self) -> bool:
        """Whether a Confirm was sent that the server may not have read."""
