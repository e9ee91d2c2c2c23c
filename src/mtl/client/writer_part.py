"""The loop's part of a writer: takes published contents, packs them, sends them, and sends lost ones again, until they
are settled.

The application's part (`mtl.client.writing`) publishes into `handover`, and reads the progress: `settled`,
`settled_octets`, `confirmed`, `sent`, `rejected`, `error`. Everything else is the loop's own.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import msgspec

from mtl.client.control import Call, Channel, Outcome
from mtl.client.flow import ClientFlow, State
from mtl.client.handover import Handover
from mtl.client.limits import QUIET_S, TURN_MESSAGES
from mtl.client.loop import Loop, Timer, do_nothing
from mtl.client.packing import Packing
from mtl.errors import Closed, DataLoss, MtlError, NotGranted, Refused
from mtl.limits import MAX_CONTENT, MAX_PACK
from mtl.protocol.rfc import RfcWriterFlow
from mtl.protocol.settlement import Sent
from mtl.protocol.writing import RefusedContent, WriterFlow
from mtl.wire import commands, control
from mtl.wire.fields import Buffer
from mtl.wire.packs import decode_pack


def _ignore(_position: int | None) -> None:
    """Ignore a Pong: the Ping only checks the lease."""


def _fault(content: commands.Content) -> MtlError | None:
    """The reason why a broker refuses a pack for good, for example invalid properties; None if it is not its octets."""
    count = commands.packed_count(content.properties)
    try:
        if count is not None:
            decode_pack(content.body, count)
    except MtlError as error:
        return error
    return None


@dataclass(frozen=True, slots=True)
class WriterOptions:
    """The options of a writer; see `Connection.writer`."""

    resources: tuple[str, ...]
    name: str | None
    packed: bool
    stage: control.StageSpec | None
    window_contents: int
    window_bytes: int
    incarnations: dict[str, str] | None
    extended: bool
    """Whether the broker and the profile have members beyond the RFC's."""
    confirm: str = "full"
    holder: str | None = None
    """A unique id of this writer among all writers of its name."""


class WriterPart:
    """See the module. `open` are those with a lease, of this process."""

    open: ClassVar[set[WriterPart]] = set()

    def __init__(self, loop: Loop, channel: Channel, options: WriterOptions) -> None:
        self.options = options
        self.listener: Callable[[], None] = do_nothing
        """Called after the lease was granted, contents were sent or settled, and at the end."""
        self.lease: control.DataLease | None = None
        self.error: MtlError | None = None
        self.handover = Handover(0)
        """Made again when the first lease shows the number to begin with."""
        self.idle = True
        """Whether `run` has to be posted for published contents; it is not when it is posted, or will run soon."""
        self.sent = 0
        """The highest number up to which all contents were given to the socket."""
        self.settled = 0
        """The highest published number, less the contents that the loop has and that are not settled."""
        self.settled_octets = 0
        """The same in octets."""
        self.confirmed = 0
        """The highest number up to which all contents are settled."""
        self.max_content, self.max_pack = MAX_CONTENT, MAX_PACK
        flow = WriterFlow if options.extended else RfcWriterFlow
        self.writer = flow(options.window_contents, options.window_bytes, confirm=options.confirm == "full")
        self.rejected: deque[RefusedContent] = self.writer.refused
        """Contents that the broker has refused; the application removes them."""
        self.faults: dict[int, MtlError] = {}
        """By their numbers, the faults of refused packs, as far as they show here; the application removes them."""
        self.flow = ClientFlow(loop, channel, self, rfc=not options.extended)
        self._loop, self._channel = loop, channel
        self._stage = options.stage
        self._written: dict[str, control.WrittenIn] = {}
        """Per resource the last epoch that certainly has contents of this writer."""
        self._unwritten: dict[str, control.WrittenIn] = {}
        """The epochs of this lease, for resources without new contents of this writer in the lease."""
        self._packing = Packing(loop, self._publish, self.push) if options.packed else None
        self._pushed = False
        self._posted = False
        """Whether the loop itself has posted `run`."""
        self._published_octets = 0
        self._timer: Timer | None = None
        self._quiet: Timer | None = None

    @property
    def sending(self) -> bool:
        """Whether published contents are sent at once."""
        return self.flow.state is State.BOUND

    # --- sending --------------------------------------------------------------------------------------------

    def push(self) -> None:
        """Send all published contents soon, also those of a pack that is not full."""
        self._pushed = True
        self.run()

    def run(self) -> None:
        """Take and send up to TURN_MESSAGES waiting contents, then return, so that the loop can do other work."""
        self.idle, self._posted = True, False
        try:
            self._take()
        except MtlError as error:
            self.failed(error)
            return
        batch = self.writer.pop_unsent(self._loop.clock(), TURN_MESSAGES) if self.sending else []
        sent = self.flow.send_contents([sent_content.item for sent_content in batch])
        if sent < len(batch):
            self.writer.push_unsent(batch[sent:])
        elif self.sending:
            self._schedule()
        if self.handover.waits:
            self._run_again()
        self._report()
        if not self.writer.waiting:
            self.listener()

    def _take(self) -> None:
        """Publish the application's contents to the flow, in packs on a packed lease."""
        items = self.handover.take(TURN_MESSAGES)
        if self._packing is None:
            for item in items:
                self._publish(item.resource, item.properties, item.body, item.count, item.size)
            return
        self._packing.add(items, self.max_pack)
        if self._pushed and not self.handover.waits:
            self._pushed = False
            self._packing.finish(self.max_pack)
        if self._packing.open:
            self.idle = False  # it will be pushed soon

    def _publish(self, resource: str, properties: bytes, body: Buffer, count: int, size: int) -> None:
        self.writer.publish(resource, properties, body, count, size)
        self._published_octets += size

    def _run_again(self) -> None:
        if not self._posted:
            self.idle, self._posted = False, True
            self._loop.post(self.run)

    def _report(self) -> None:
        """Tell the application the progress."""
        writer = self.writer
        self.sent = writer.sent
        self.settled = writer.next - 1 - writer.unconfirmed
        self.settled_octets = self._published_octets - writer.octets
        self.confirmed = writer.confirmed

    def _schedule(self) -> None:
        """Schedule the next `run` for the time when contents are due."""
        due = self.writer.due
        if due is None or self._posted:
            return
        delay = due - self._loop.clock()
        if delay <= 0:
            self._run_again()
        elif self._timer is None or self._timer.call is None:
            self._timer = self._loop.after(delay, self._run_delayed)

    def _run_delayed(self) -> None:
        self._timer = None
        self.run()

    # --- the flow's user ------------------------------------------------------------------------------------

    def lease_request(self) -> control.ConnectionWriter:
        """The request for a lease. Later requests are for another lease of the same name or stage."""
        o = self.options
        if not o.extended:
            return control.ConnectionWriter(resources=list(o.resources), confirm=o.confirm)
        return control.ConnectionWriter(
            resources=list(o.resources),
            confirm=o.confirm,
            packed=o.packed,
            writer=o.name,
            holder=o.holder,
            epoch=self.lease.epoch if self.lease is not None else None,
            stage=self._stage,
            incarnations=o.incarnations,
            log_epochs=dict(self._written) or None,
            request_id=self.flow.id,
            binding=True,
        )

    def granted(self, lease: control.DataLease) -> None:
        """Check the granted members. The first lease has the number to begin with. Raises `DataLoss` if a later
        lease shows that confirmed contents are gone.
        """
        if self.options.extended:
            self._check(lease)
        last = max((lease.last or {}).values(), default=0)
        if self.lease is None:
            self.writer.start(last + 1)
            self.handover = Handover(last)
            WriterPart.open.add(self)
            self._report()
        elif lease.last is not None and (lost := self.writer.missing(last)) is not None:
            raise self._lost(*lost)
        self.lease = lease
        self._unwritten = dict(lease.log_epochs or {})
        self.max_content = lease.max_content or MAX_CONTENT
        self.max_pack = lease.max_pack or MAX_PACK
        if self._stage is not None and lease.stage is not None:
            self._stage = msgspec.structs.replace(self._stage, id=lease.stage)
        self.listener()

    def _check(self, lease: control.DataLease) -> None:
        endpoint = self._channel.settings.endpoint
        if self.options.packed and not lease.packed:
            raise NotGranted(endpoint, "packed")
        if self.options.name is not None and lease.last is None:
            raise NotGranted(endpoint, "writer")
        if self.options.stage is not None and lease.stage is None:
            raise NotGranted(endpoint, "stage")

    def refused(self, error: Refused) -> Refused | None:
        """Every refusal is final; it is a `DataLoss` if the broker forgot a writer with confirmed contents."""
        confirmed = self.writer.confirmed
        return self._lost(1, confirmed + 1) if error.reason == control.UNKNOWN_WRITER and confirmed else error

    def _lost(self, first: int, end: int) -> DataLoss:
        """The error for confirmed contents that the broker no longer has."""
        names = ", ".join(self.options.resources) or "any resource"
        return DataLoss(
            names,
            first,
            end,
            f"the broker no longer has the contents that this writer published to {names} as numbers {first} to "
            f"{end - 1}, although it had confirmed them: its data was removed or replaced by an older copy, or the "
            "resource was deleted and created again. Open another writer to continue",
        )

    def bound(self) -> None:
        """Send the waiting contents, and watch for Confirms."""
        self._watch(self.writer.progressed)
        self.run()

    def _watch(self, progressed: int) -> None:
        """Ping if nothing was settled for QUIET_S, to check the lease: contents of a fenced writer get no answer."""
        if self._quiet is not None:
            self._quiet.cancel()
        if not self.sending:
            return
        if self.writer.unconfirmed and self.writer.progressed == progressed:
            self.flow.ping(_ignore)
        now = self.writer.progressed
        self._quiet = self._loop.after(QUIET_S, lambda: self._watch(now))

    def command(self, command: commands.Content | commands.Confirm | commands.Reject) -> None:
        """Handle a Confirm or Reject."""
        if isinstance(command, commands.Content):
            return
        settled = self.writer.received(command, self._loop.clock())
        if settled:
            if isinstance(command, commands.Reject):
                self.faults.update((sent.last, fault) for sent in settled if (fault := _fault(sent.item)))
            if self._unwritten and isinstance(command, commands.Confirm):
                self._note_epochs(settled)
            self._report()
            self.listener()
        self._schedule()

    def _note_epochs(self, settled: Sequence[Sent[commands.Content]]) -> None:
        """Record the epochs of confirmed contents. Contents above the lease's `last` are new, so they are of the
        lease's epoch.
        """
        last = (self.lease.last if self.lease is not None else None) or {}
        for sent in settled:
            name = sent.item.resource or self.options.resources[0]
            if name in self._unwritten and sent.first > last.get(name, 0):
                self._written[name] = self._unwritten.pop(name)

    def answered(self, request: commands.Summon | commands.Dismiss, ok: bool) -> None:
        """No effect: writers do not summon."""

    def contents(self, _like: commands.Content, _first: int, _bodies: Sequence[Buffer]) -> int:
        """No effect: a writer receives no contents."""
        return 0

    def drained(self) -> None:
        """No effect: Confirms are handled one by one."""

    def writable(self) -> None:
        """Continue to send: there is room in the socket again."""
        self.run()

    def proven(self) -> None:
        """No effect: the broker drops repeated contents."""

    def down(self) -> None:
        """Mark all unconfirmed contents to be sent again."""
        self.writer.lost()
        self._report()
        self.listener()

    def failed(self, error: MtlError) -> None:
        """Set the error, and wake the application."""
        WriterPart.open.discard(self)
        if self.error is None:
            self.error = error
        self.listener()

    # --- closing --------------------------------------------------------------------------------------------

    def abandon(self, then: Callable[[Outcome], None], *, within: float | None) -> None:
        """End at once. A stage is aborted, which ends its lease: closing the lease would seal the stage."""
        stage = self.lease.stage if self.lease is not None else None
        if stage is None:
            self.close(then, within=within)
            return
        self.flow.drop()
        self._channel.submit(Call(control.StageAbort(stages=[stage]), then, within=within))
        self.failed(Closed("the writer is closed"))

    def seal(self, then: Callable[[Outcome], None], *, within: float | None) -> None:
        """Close, which seals the stage. `then` gets a LeaseClosed with the stage, also if a restart of the broker ended
        the lease before: all contents are confirmed, so the stage is complete.
        """

        def ended(outcome: Outcome) -> None:
            if isinstance(outcome, Refused) and outcome.reason == control.UNKNOWN_LEASE:
                stage = self.lease.stage if self.lease is not None else None
                request = control.StageDescribe(stage=stage)
                self._channel.submit(Call(request, lambda reply: then(self._sealed(reply))))
            else:
                then(outcome)

        self.close(ended, within=within)

    def _sealed(self, reply: Outcome) -> Outcome:
        stage = self.lease.stage if self.lease is not None else None
        for found_stage in reply.stages if isinstance(reply, control.StageList) else ():
            if found_stage.stage == stage:
                return control.LeaseClosed(
                    stage=control.StageSealed(
                        stage=found_stage.stage, contents=found_stage.contents, bytes=found_stage.bytes
                    )
                )
        gone = Refused(404, control.UNKNOWN_STAGE, f"stage {stage} does not exist any more", stage=stage)
        return reply if isinstance(reply, MtlError) else gone

    def close(self, then: Callable[[Outcome], None], *, within: float | None) -> None:
        """End the lease and drop unconfirmed contents. With confirm "none", first wait until the broker has read
        them.
        """

        def end(_position: int | None = None) -> None:
            timer.cancel()
            self.flow.close(then, within=within)
            self.failed(Closed("the writer is closed"))

        timer = self._loop.after(self._channel.settings.request_timeout, end)
        if self.options.confirm == "none" and self.sending:
            self.flow.ping(end)
        else:
            end()


os.register_at_fork(after_in_child=WriterPart.open.clear)
