"""A writer of RFC 11 alone: no name, numbers from 1 in every lease, unconfirmed contents are resent.

Such a writer is at least once across a broker's restart, and exactly once within a lease.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from mtl.client.flow import ClientFlow
from mtl.errors import MtlError, Refused
from mtl.wire import commands, control
from mtl.wire.fields import EMPTY, Buffer
from tests.simulator.model import Model, Tag, Violation
from tests.simulator.network import Routers
from tests.simulator.process import Process, is_of_the_disk
from tests.simulator.world import World


class PlainWriter:
    """The user of a `ClientFlow`; keeps unconfirmed contents in order, by their numbers in the present lease."""

    def __init__(self, process: Process, model: Model, resource: str, left: deque[Tag]) -> None:
        self.error: MtlError | None = None
        self.unconfirmed: deque[tuple[int, Tag]] = deque()
        self.left = left
        self._resource = resource
        self._model = model
        self._next = 1
        self._sent = 0
        self._process = process
        self.flow = ClientFlow(process.loop, process.channel(), self)
        self.flow.start()
        process.wake()

    def publish(self) -> None:
        """Send remaining contents while there is room."""
        while self.left and len(self.unconfirmed) < 100:
            self.unconfirmed.append((self._next, self.left.popleft()))
            self._next += 1
        self._send()

    def _send(self) -> None:
        for number, tag in self.unconfirmed:
            if number > self._sent:
                content = commands.Content(number, self._resource, EMPTY, tag.encode())
                if not self.flow.send_contents([content]):
                    return
                self._sent = number

    # --- the flow's user ------------------------------------------------------------------------------------

    def lease_request(self) -> control.ConnectionWriter:
        """Only members of RFC 11."""
        return control.ConnectionWriter(resources=[self._resource], confirm="full")

    def granted(self, lease: control.DataLease) -> None:
        """Numbers restart with the unconfirmed contents."""
        again = deque(tag for _, tag in self.unconfirmed)
        self.unconfirmed.clear()
        self.left.extendleft(reversed(again))
        self._next, self._sent = 1, 0

    def refused(self, error: Refused) -> Refused | None:
        """The end of this life."""
        return error

    def bound(self) -> None:
        """Send from the last Confirm on."""
        self._sent = self.unconfirmed[0][0] - 1 if self.unconfirmed else self._next - 1
        self.publish()

    def command(self, command: commands.Content | commands.Confirm | commands.Reject) -> None:
        """Confirms settle contents; a Reject with recycle resends them."""
        if isinstance(command, commands.Confirm) and command.sequence <= self._sent:
            while self.unconfirmed and self.unconfirmed[0][0] <= command.sequence:
                self._model.confirm([self.unconfirmed.popleft()[1]])
        elif isinstance(command, commands.Reject):
            if not command.recycle:
                raise Violation(f"a good content was refused: {command}")
            self._sent = min(self._sent, command.sequence - 1)
            self._process.after(0.01, self._send)

    def answered(self, asked: commands.Summon | commands.Dismiss, ok: bool) -> None:
        """A writer sends no Summon."""

    def contents(self, _like: commands.Content, _first: int, _bodies: Sequence[Buffer]) -> int:
        """A writer gets no contents."""
        return 0

    def drained(self) -> None:
        """No work depends on it."""

    def writable(self) -> None:
        """Go on."""
        self._send()

    def proven(self) -> None:
        """No effect."""

    def down(self) -> None:
        """It will be bound again."""

    def failed(self, error: MtlError) -> None:
        """The end of this life."""
        self.error = error


class PlainApp:
    """Publishes with a `PlainWriter`; its process may die, and its unpublished contents are kept."""

    def __init__(
        self, world: World, routers: Routers, model: Model, name: str, resource: str, pace_s: float
    ) -> None:
        self.world = world
        self.name = name
        self.stopped = False
        self._routers = routers
        self._model = model
        self._resource = resource
        self._pace_s = pace_s
        self._count = 0
        self._left: deque[Tag] = deque()
        self._begin()

    def _begin(self) -> None:
        self.process = Process(self.world, self._routers, self.name)
        self.writer = PlainWriter(self.process, self._model, self._resource, self._left)
        self.process.after(0.01, self._work)

    def kill(self) -> None:
        """The next process publishes unconfirmed contents again."""
        self.process.kill()
        self._left.extendleft(reversed([tag for _, tag in self.writer.unconfirmed]))
        self._begin()

    @property
    def settled(self) -> bool:
        """Whether all contents are confirmed."""
        return not (self._left or self.writer.unconfirmed)

    def _work(self) -> None:
        if self.writer.error is not None:
            if not is_of_the_disk(self.writer.error):
                raise Violation(f"{self.name} failed: {self.writer.error!r}")
            self.process.after(self.world.between(0.05, 2.0), self.kill)
            return
        if not self.stopped:
            for _ in range(1 + self.world.upto(3)):
                self._count += 1
                tag = f"{self.name}.{self._count}"
                self._model.publish(tag, self._resource, self.name, self._count, once=False)
                self._left.append(tag)
        self.writer.publish()
        self.process.after(self.world.between(self._pace_s / 4, self._pace_s * 4), self._work)
