"""The loop's part of a reader of a server of RFC 11 only, or in profile `test`.

There are no positions: the application gets contents in the order of arrival. With confirm "full" each is confirmed by
the sequence number in its delivery.
"""

from __future__ import annotations

from collections.abc import Sequence

from mtl.client.control import Channel
from mtl.client.flow import State
from mtl.client.loop import Loop
from mtl.client.reader_part import ReaderOptions, ReaderPart
from mtl.errors import Refused
from mtl.protocol.reading import Delivery, PlainRun
from mtl.protocol.rfc import RfcReaderFlow
from mtl.wire import commands, control
from mtl.wire.fields import Buffer


class RfcReaderPart(ReaderPart):
    """See the module."""

    rfc = True
    credit_delay_s = 0.0  # the server's limit of unconfirmed contents is unknown

    def __init__(self, loop: Loop, channel: Channel, options: ReaderOptions) -> None:
        super().__init__(loop, channel, options)
        self._finished: tuple[int, Delivery | PlainRun | None] = 0, None
        """The number of contents that the application has finished, and the last delivery of them; only its thread
        writes this."""
        self._credited = 0
        self._reader = RfcReaderFlow()
        self._full = options.confirm == "full"

    # --- for the application's side -------------------------------------------------------------------------

    def finish(self, done: Delivery | PlainRun) -> None:
        """Count finished contents: once, although an interrupted call is repeated."""
        finished, last = self._finished
        if done is not last:
            self._finished = finished + done.end - done.first, done

    def credit(self) -> None:
        """Confirm finished contents."""
        finished, credited = self._finished[0], self._credited
        self._credited = finished
        if self._full:
            for confirm in self._reader.finish(finished - credited):
                self.flow.send(confirm)

    def confirm(self, sequence: int, log_epoch: str | None = None) -> None:  # noqa: ARG002 only a log has epochs
        """Confirm every content up to the one with this number of the server."""
        self.credit()
        self.flow.send(commands.Confirm(sequence, multiple=True))

    # --- the flow's user ------------------------------------------------------------------------------------

    def lease_request(self) -> control.ConnectionReader:
        """The request for a lease, with the RFC's members only."""
        return control.ConnectionReader(resources=[self.options.resource], confirm=self.options.confirm)

    def granted(self, lease: control.DataLease) -> None:
        """Nothing to check: such a server does not echo."""
        self.lease = lease
        self.listener()

    def refused(self, error: Refused) -> Refused | None:
        """Every refusal is final."""
        return error

    def bound(self) -> None:
        """Summon the resource, at first or again."""
        if self._summoned:
            self.flow.send_request(commands.Summon, self.options.resource)

    def command(self, command: commands.Content | commands.Confirm | commands.Reject) -> None:
        """Handle a Content."""
        if not isinstance(command, commands.Content):
            return
        if self._full:
            self._reader.received(command)
        first, size = command.sequence, memoryview(command.body).nbytes
        self._arrived.append(Delivery(first, first + 1, 0, command, None, size))

    def contents(self, like: commands.Content, first: int, bodies: Sequence[Buffer]) -> int:
        """Handle contents that differ from an earlier one only in number and body; 0 if each has to be confirmed."""
        if self._full:
            return 0
        self._arrived.append(PlainRun(first, first + len(bodies), like, bodies, sum(map(len, bodies))))
        return len(bodies)

    def down(self) -> None:
        """Keep all delivered contents: the RFC does not promise another delivery."""
        self._reader.lost()

    # --- closing --------------------------------------------------------------------------------------------

    def _has_unacknowledged_confirm(self) -> bool:
        if self.flow.state is not State.BOUND:
            return False
        self.credit()
        return self._full and self._credited > 0
