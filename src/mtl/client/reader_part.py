"""The common base of the readers' parts in the loop: queue of deliveries, Summon, lease.

The application's part (`mtl.client.reading`) takes from `queue`. `LogReaderPart` reads a log by positions,
`RfcReaderPart` reads from a server of RFC 11 only.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

from mtl.client.control import Channel, Outcome
from mtl.client.flow import ClientFlow
from mtl.client.loop import Loop, do_nothing
from mtl.errors import Closed, MtlError, Refused
from mtl.limits import CREDIT_DELAY_S
from mtl.protocol.reading import Delivery, Gap, PlainRun
from mtl.wire import commands, control

Start = Literal["earliest", "latest", "group"] | int


@dataclass(frozen=True, slots=True)
class ReaderOptions:
    """The options of a reader; see `Connection.reader`."""

    resource: str
    start: Start
    until: int | None
    group: str | None
    holder: str | None
    holding_epoch: int | None
    packed: bool
    window_contents: int
    window_bytes: int
    incarnation: str | None
    skip_lost: bool
    confirm: str = "full"
    log_epoch: str | None = None
    """The epoch of the content before `start`."""
    until_epoch: str | None = None
    """The epoch of the content before `until`, if all of the range existed before."""
    local: bool = False
    """Whether the broker may send the places of large packs in its files instead of the packs."""


class ReaderPart(ABC):
    """See the module. Subclasses are the users of `flow`."""

    rfc: ClassVar[bool] = False
    """Whether only RFC 11 is used, without extensions."""
    credit_delay_s: ClassVar[float] = CREDIT_DELAY_S
    """Seconds by which a reader that waits for contents delays the Confirm of finished ones."""

    def __init__(self, loop: Loop, channel: Channel, options: ReaderOptions) -> None:
        self.options = options
        self.queue: deque[Delivery | PlainRun] = deque()
        self.listener: Callable[[], None] = do_nothing
        """Called when there is news for the application: the lease, contents, the end or an error."""
        self.lease: control.DataLease | None = None
        self.error: MtlError | None = None
        self.ended = False
        self.lost: list[Gap] = []
        """Lost ranges that were skipped, with `skip_lost`."""
        self.local = options.local
        """Whether packs may be sent as places; false after `send_instead`."""
        self.flow = ClientFlow(loop, channel, self, rfc=self.rfc)  # type: ignore[arg-type]  # the rest is the subclasses'
        self._loop = loop
        self._channel = channel
        self._arrived: list[Delivery | PlainRun] = []
        self._summoned = False

    # --- for the application's side -------------------------------------------------------------------------

    @property
    def start(self) -> int | None:
        """The sequence at which reading begins or, after losses, continues; None if unknown."""
        return None

    def log_epoch(self, position: int | None) -> str | None:  # noqa: ARG002 only a log has epochs
        """The epoch of the content before a position that the reader has reached, if known."""
        return None

    @abstractmethod
    def finish(self, done: Delivery | PlainRun) -> None:
        """Record the contents that the application has finished. `credit` confirms them. Called in the
        application's thread.
        """

    @abstractmethod
    def credit(self) -> None:
        """Confirm finished contents when a Confirm is due."""

    @abstractmethod
    def confirm(self, sequence: int, log_epoch: str | None = None) -> None:
        """Confirm up to `sequence` now."""

    def send_instead(self, first: int) -> None:  # noqa: B027 not all need it
        """Read again from `first` on, through the socket: this process cannot read the broker's files. Without
        effect for a server that never sends places.
        """

    def summon(self) -> None:
        """Start reading: the application waits for contents."""
        if not self._summoned:
            self._summoned = True
            self.flow.send_request(commands.Summon, self.options.resource)

    # --- the flow's user ------------------------------------------------------------------------------------

    @abstractmethod
    def lease_request(self) -> control.ConnectionReader:
        """The request for a lease."""

    def answered(self, request: commands.Summon | commands.Dismiss, ok: bool) -> None:
        """Fail if the resource cannot be summoned, because it does not exist any more."""
        if not ok and isinstance(request, commands.Summon):
            self.failed(Refused(400, "summon", f"the broker does not send contents of {request.resource!r}"))

    def drained(self) -> None:
        """Hand over the contents that arrived, all at once."""
        if self._arrived:
            self.queue.extend(self._arrived)
            self._arrived.clear()
            self.listener()
            self._check_end()

    def _check_end(self) -> None:  # noqa: B027 not all need it
        """Note whether the range has ended."""

    def writable(self) -> None:  # noqa: B027 not all need it
        """No effect: only the flow's own queue waits for room."""

    def proven(self) -> None:  # noqa: B027 not all need it
        """No effect: positions show whether contents are delivered twice."""

    def failed(self, error: MtlError) -> None:
        """Set the error, which the application gets after the contents delivered before."""
        self.drained()
        if self.error is None:
            self.error = error
        self.listener()

    # --- closing --------------------------------------------------------------------------------------------

    def close(self, then: Callable[[Outcome], None], *, within: float) -> None:
        """End the lease, once the server has processed the Confirms of the application."""

        def end(_position: int | None = None) -> None:
            timer.cancel()
            self.flow.close(then, within=within)
            self.failed(Closed("the reader is closed"))

        timer = self._loop.after(within, end)
        if self._has_unacknowledged_confirm():
            self.flow.ping(end)
        else:
            end()

    @abstractmethod
    def _has_unacknowledged_confirm(self) -> bool:
        """Whether a Confirm was sent that the server may not have processed."""
