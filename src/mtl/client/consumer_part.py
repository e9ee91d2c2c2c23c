"""The loop's part of a consumer: receives contents of queues, sends answers, and keeps the lease.

The application's part (`mtl.client.consuming`) takes from `queue` and puts answers into `answers`. After a lost
connection the lease is presented again, or another one requested. The broker has then put unanswered contents back
into the queue, so the contents that wait here are dropped.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mtl.client.control import Channel, Outcome
from mtl.client.flow import ClientFlow, State
from mtl.client.loop import Loop, do_nothing
from mtl.errors import Closed, MtlError, NotGranted, Refused
from mtl.protocol.consuming import ConsumerAnswer, ConsumerFlow, Hand
from mtl.protocol.rfc import RfcConsumerFlow
from mtl.protocol.states import ResourceState
from mtl.wire import commands, control
from mtl.wire.fields import Buffer

_TO_SEND: dict[tuple[bool, ResourceState], type[commands.Summon | commands.Dismiss]] = {
    (True, ResourceState.DISMISSED): commands.Summon,
    (False, ResourceState.SUMMONED): commands.Dismiss,
}
"""(whether contents of a resource are wanted, its state): the command that leads from the state to the wanted
one."""


@dataclass(frozen=True, slots=True)
class ConsumerOptions:
    """The options of a consumer; see `Connection.consumer`."""

    resources: tuple[str, ...]
    queue: str | None
    start: str | int | None
    window_contents: int
    window_bytes: int
    confirm: str = "full"
    extended: bool = True
    """Whether the broker has queues. With a server of RFC 11 only, contents are answered as well."""


class ConsumerPart:
    """See the module."""

    def __init__(self, loop: Loop, channel: Channel, options: ConsumerOptions) -> None:
        self.options = options
        self.queue: deque[tuple[Hand, commands.Content]] = deque()
        self.answers: deque[tuple[Hand, ConsumerAnswer, str]] = deque()
        self.listener: Callable[[], None] = do_nothing
        """Called when there is news for the application: the lease, contents or an error."""
        self.lease: control.DataLease | None = None
        self.error: MtlError | None = None
        self.flow = ClientFlow(loop, channel, self, rfc=not options.extended)
        self._loop = loop
        self._channel = channel
        flow = ConsumerFlow if options.extended else RfcConsumerFlow
        self._state = flow(confirm=options.confirm == "full")
        self._wanted: dict[str, None] = dict.fromkeys(options.resources)
        self._arrived: list[tuple[Hand, commands.Content]] = []

    @property
    def delivers_again(self) -> bool:
        """Whether the broker delivers contents again that were not answered when the flow ended."""
        return self.options.extended and self.options.confirm == "full"

    # --- posted by the application's side -------------------------------------------------------------------

    def summon(self, resource: str) -> None:
        """Consume from the queue of a resource."""
        self._wanted[resource] = None
        self._send_summon_or_dismiss(resource)

    def dismiss(self, resource: str) -> None:
        """Stop consuming from a resource; delivered contents may still be answered."""
        self._wanted.pop(resource, None)
        self._send_summon_or_dismiss(resource)

    def _send_summon_or_dismiss(self, resource: str) -> None:
        """Send the Summon or Dismiss that leads to the wanted state. If one is unanswered, its Response calls this
        method.
        """
        kind = _TO_SEND.get((resource in self._wanted, self.flow.resource(resource)))
        if kind is not None:
            self.flow.send_request(kind, resource)

    def answer(self) -> None:
        """Send the application's new answers."""
        while self.answers:
            self._state.answer(*self.answers.popleft())
        for command in self._state.take_commands():
            self.flow.send(command)

    # --- the flow's user ------------------------------------------------------------------------------------

    def lease_request(self) -> control.ConnectionReader:
        """The request for a lease of the consumer's queues."""
        o = self.options
        if not o.extended:
            return control.ConnectionReader(resources=list(o.resources), confirm=o.confirm)
        return control.ConnectionReader(
            resources=list(o.resources),
            confirm=o.confirm,
            from_=o.start,  # type: ignore[arg-type]  # checked by the broker, like every request
            window=control.Window(contents=o.window_contents, bytes=o.window_bytes),
            group=o.queue,
            request_id=self.flow.id,
            binding=True,
        )

    def granted(self, lease: control.DataLease) -> None:
        """Check the echo: a server without queues would send every content to every consumer."""
        if self.options.extended and lease.group is None:
            raise NotGranted(self._channel.settings.endpoint, "group")
        self.lease = lease
        self.listener()

    def refused(self, error: Refused) -> Refused | None:
        """Every refusal is final."""
        return error

    def bound(self) -> None:
        """Summon the resources, at first or again."""
        for resource in self._wanted:
            self._send_summon_or_dismiss(resource)

    def answered(self, request: commands.Summon | commands.Dismiss, ok: bool) -> None:
        """Fail if a resource cannot be summoned: it does not exist, or the user may not read it."""
        if ok:
            self._send_summon_or_dismiss(request.resource)
        elif isinstance(request, commands.Summon) and request.resource in self._wanted:
            del self._wanted[request.resource]
            reason = f"the broker does not send contents of {request.resource!r}: no such resource, or no right to it"
            self.failed(Refused(400, "summon", reason))

    def command(self, command: commands.Content | commands.Confirm | commands.Reject) -> None:
        """Handle a Content."""
        if isinstance(command, commands.Content):
            self._arrived.append((self._state.received(command), command))

    def contents(self, _like: commands.Content, _first: int, _bodies: Sequence[Buffer]) -> int:
        """Returns 0: contents are handled one by one, because each is answered on its own."""
        return 0

    def drained(self) -> None:
        """Hand over the contents that arrived, all at once."""
        if self._arrived:
            self.queue.extend(self._arrived)
            self._arrived.clear()
            self.listener()

    def writable(self) -> None:
        """No effect: only the flow's own queue waits for room."""

    def down(self) -> None:
        """Drop contents that the application has not taken: the broker delivers them again. They stay where there is no
        other delivery: with confirm "none", and with a server of RFC 11 only, where answers to them are ignored.
        """
        self._state.lost()
        if self.delivers_again:
            self._arrived.clear()
            self.queue.clear()

    def proven(self) -> None:
        """Let the application take the contents that it has left until the broker's answer."""
        self.listener()

    def failed(self, error: MtlError) -> None:
        """Set the error, which the application gets after the contents delivered before."""
        self.drained()
        if self.error is None:
            self.error = error
        self.listener()

    # --- closing --------------------------------------------------------------------------------------------

    def close(self, then: Callable[[Outcome], None], *, within: float) -> None:
        """End the lease once the broker has the last answers; unanswered contents go back to the queue."""
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
