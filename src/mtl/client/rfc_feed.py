"""A reader's side in the IO thread where the server knows the RFC only, or the profile is `test`.

There are no positions: contents are given to the application in the order in which they come. With confirm "full" each
is confirmed by the number that it came with.
"""

from __future__ import annotations

from collections.abc import Sequence

from mtl.client.control import Channel
from mtl.client.flow import State
from mtl.client.incoming import Incoming, ReaderOptions
from mtl.client.io import Loop
from mtl.errors import Refused
from mtl.protocol.reading import Delivery, Run
from mtl.protocol.rfc import RfcReaderFlow
from mtl.wire import commands as c
from mtl.wire import control as w
from mtl.wire.fields import Buffer


class RfcFeed(Incoming):
    """See the module."""

    rfc = True
    credit_delay_s = 0.0  # nobody knows how few contents the server lets be unconfirmed

    def __init__(self, loop: Loop, channel: Channel, options: ReaderOptions) -> None:
        super().__init__(loop, channel, options)
        self.finished = 0
        """How many contents the application is done with; written by its thread only."""
        self._credited = 0
        self._reader = RfcReaderFlow()
        self._full = options.confirm == "full"

    # --- for the application's side -------------------------------------------------------------------------

    def finish(self, done: Delivery | Run) -> None:
        """Count what is done with."""
        self.finished += done.end - done.first

    def credit(self) -> None:
        """Confirm what is done with."""
        finished, credited = self.finished, self._credited
        self._credited = finished
        if self._full:
            for confirm in self._reader.finish(finished - credited):
                self.flow.send(confirm)

    def confirm(self, sequence: int, epoch: str | None = None) -> None:  # noqa: ARG002 only a log has epochs
        """Confirm every content up to the one with this number, as the server counts."""
        self.credit()
        self.flow.send(c.Confirm(sequence, multiple=True))

    # --- the flow's user ------------------------------------------------------------------------------------

    def lease_request(self) -> w.Reader:
        """What the RFC has."""
        return w.Reader(resources=[self.options.resource], confirm=self.options.confirm)

    def granted(self, lease: w.DataLease) -> None:
        """Nothing is echoed."""
        self.lease = lease
        self.granted_event.set()

    def refused(self, error: Refused) -> Refused | None:
        """There is nothing else to ask for."""
        return error

    def bound(self) -> None:
        """Begin, or go on."""
        if self._summoned:
            self.flow.ask(c.Summon, self.options.resource)

    def command(self, command: c.Content | c.Confirm | c.Reject) -> None:
        """A Content arrived."""
        if not isinstance(command, c.Content):
            return
        if self._full:
            self._reader.received(command)
        first, size = command.sequence, memoryview(command.body).nbytes
        self._arrived.append(Delivery(first, first + 1, 0, command, None, size))

    def contents(self, like: c.Content, first: int, bodies: Sequence[Buffer]) -> int:
        """Contents that are like one before them arrived; to be confirmed, each by itself."""
        if self._full:
            return 0
        self._arrived.append(Run(first, first + len(bodies), like, bodies, sum(map(len, bodies))))
        return len(bodies)

    def down(self) -> None:
        """What was delivered stays, also what nobody has looked at yet: the RFC does not say that it comes again."""
        self._reader.lost()

    # --- closing --------------------------------------------------------------------------------------------

    def _unheard(self) -> bool:
        if self.flow.state is not State.BOUND:
            return False
        self.credit()
        return self._full and self._credited > 0
