"""A consumer's side in the IO thread: contents of queues in, answers out, and the lease alive.

The application's side (`mtl.client.consumer`) takes from `queue` and puts answers into `answers`. After a loss the
lease is presented again or another one taken; what was in hand went back to the queue then, so what waits here is
dropped.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Event

from mtl.client.control import Channel, Outcome
from mtl.client.flow import Flow, State
from mtl.client.io import Loop
from mtl.client.notice import Notice
from mtl.errors import Closed, MtlError, NotGranted, Refused
from mtl.protocol.consuming import Answer, ConsumerFlow, Hand
from mtl.protocol.rfc import RfcConsumerFlow
from mtl.protocol.states import Resource
from mtl.wire import commands as c
from mtl.wire import control as w
from mtl.wire.fields import Buffer

_TO_ASK: dict[tuple[bool, Resource], type[c.Summon | c.Dismiss]] = {
    (True, Resource.DISMISSED): c.Summon,
    (False, Resource.SUMMONED): c.Dismiss,
}
"""(whether contents of a resource are wanted, where it stands) -> what brings the two together; nothing else does."""


@dataclass(frozen=True, slots=True)
class ConsumerOptions:
    """What a consumer asks for; see `Connection.consumer`."""

    resources: tuple[str, ...]
    queue: str | None
    start: str | int | None
    window_contents: int
    window_bytes: int
    confirm: str = "full"
    extended: bool = True
    """Whether the broker knows queues; a server that knows the RFC only has contents to be answered, too."""


class Deliveries(Notice):
    """See the module."""

    def __init__(self, loop: Loop, channel: Channel, options: ConsumerOptions) -> None:
        super().__init__()
        self.options = options
        self.queue: deque[tuple[Hand, c.Content]] = deque()
        self.answers: deque[tuple[Hand, Answer, str]] = deque()
        self.granted_event = Event()
        self.lease: w.DataLease | None = None
        self.error: MtlError | None = None
        self.flow = Flow(loop, channel, self, rfc=not options.extended)
        self._loop = loop
        self._channel = channel
        flow = ConsumerFlow if options.extended else RfcConsumerFlow
        self._state = flow(confirm=options.confirm == "full")
        self._wanted: dict[str, None] = dict.fromkeys(options.resources)
        self._arrived: list[tuple[Hand, c.Content]] = []

    # --- posted by the application's side -------------------------------------------------------------------

    def summon(self, resource: str) -> None:
        """Take part in the queue of a resource."""
        self._wanted[resource] = None
        self._see_to(resource)

    def dismiss(self, resource: str) -> None:
        """Take nothing more from it; what is in hand may still be answered."""
        self._wanted.pop(resource, None)
        self._see_to(resource)

    def _see_to(self, resource: str) -> None:
        """Ask for what the application wants now; while an earlier question is open, its Response does."""
        kind = _TO_ASK.get((resource in self._wanted, self.flow.resource(resource)))
        if kind is not None:
            self.flow.ask(kind, resource)

    def answer(self) -> None:
        """Send what the application said since the last time."""
        while self.answers:
            self._state.answer(*self.answers.popleft())
        for command in self._state.commands():
            self.flow.send(command)

    # --- the flow's user ------------------------------------------------------------------------------------

    def lease_request(self) -> w.Reader:
        """Ask for the same queues again."""
        o = self.options
        if not o.extended:
            return w.Reader(resources=list(o.resources), confirm=o.confirm)
        return w.Reader(
            resources=list(o.resources),
            confirm=o.confirm,
            from_=o.start,  # type: ignore[arg-type]  # checked by the broker, like every request
            window=w.Window(contents=o.window_contents, bytes=o.window_bytes),
            group=o.queue,
            request_id=self.flow.id,
            binding=True,
        )

    def granted(self, lease: w.DataLease) -> None:
        """Check the echo: a server that does not know queues would send everything to everybody."""
        if self.options.extended and lease.group is None:
            raise NotGranted(self._channel.settings.endpoint, "group")
        self.lease = lease
        self.granted_event.set()

    def refused(self, error: Refused) -> Refused | None:
        """There is nothing else to ask for."""
        return error

    def bound(self) -> None:
        """Begin, or go on."""
        for resource in self._wanted:
            self._see_to(resource)

    def answered(self, asked: c.Summon | c.Dismiss, ok: bool) -> None:
        """A resource that cannot be summoned is not there, or not ours to read."""
        if ok:
            self._see_to(asked.resource)
        elif isinstance(asked, c.Summon) and asked.resource in self._wanted:
            del self._wanted[asked.resource]
            reason = (
                f"the broker does not send contents of {asked.resource!r}: there is none, or no right to it"
            )
            self.failed(Refused(400, "summon", reason))

    def command(self, command: c.Content | c.Confirm | c.Reject) -> None:
        """A Content arrived."""
        if isinstance(command, c.Content):
            self._arrived.append((self._state.received(command), command))

    def contents(self, _like: c.Content, _first: int, _bodies: Sequence[Buffer]) -> int:
        """Each has its own position, and is told from the others by it."""
        return 0

    def drained(self) -> None:
        """Hand over what arrived, all at once."""
        if self._arrived:
            self.queue.extend(self._arrived)
            self._arrived.clear()
            self.notify()

    def writable(self) -> None:
        """Nothing of a consumer waits for room but the flow's own queue."""

    def down(self) -> None:
        """What was in hand is somebody's again; what nobody has looked at is dropped. It stays where the server knows
        the RFC only, which does not say that it comes again; an answer to it is ignored.
        """
        self._state.lost()
        if self.options.extended:
            self._arrived.clear()
            self.queue.clear()

    def failed(self, error: MtlError) -> None:
        """Tell the application, after what was delivered before."""
        if self.error is None:
            self.error = error
        self.granted_event.set()
        self.notify()

    # --- closing --------------------------------------------------------------------------------------------

    def close(self, then: Callable[[Outcome], None], *, within: float) -> None:
        """End the lease, when the broker has taken in the last answers; what is in hand goes back to the queue."""
        self.answer()

        def end(_position: int | None = None) -> None:
            timer.cancel()
            self.flow.close(then, within=within, in_order=True)
            self.failed(Closed("the consumer is closed"))

        timer = self._loop.after(within, end)
        if self.flow.state is State.BOUND:
            self.flow.ping(end)
        else:
            end()
