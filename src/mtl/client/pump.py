"""The loop's part of a writer: sends published contents, and sends lost ones again, until they are settled.

`lock` guards `writer` (the sans-IO flow), which the application's part (`mtl.client.writing`) uses as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from mtl.client.control import Call, Channel, Outcome
from mtl.client.flow import ClientFlow, State
from mtl.client.limits import PUMP, QUIET_S
from mtl.client.loop import Loop, Timer, do_nothing
from mtl.client.shared import Shared
from mtl.errors import Closed, DataLoss, MtlError, NotGranted, Refused
from mtl.limits import LOCAL_FROM, MAX_CONTENT, MAX_PACK
from mtl.net.machine import machine_mark
from mtl.protocol.rfc import RfcWriterFlow
from mtl.protocol.settlement import Sent
from mtl.protocol.writing import WriterFlow
from mtl.wire import commands as c
from mtl.wire import control as w
from mtl.wire.fields import Buffer
from mtl.wire.packs import ArrowBuffer, RecordBatch, encode_batch


def _ignore(_position: int | None) -> None:
    """Ignore a Pong: the Ping only checks the lease."""


@dataclass(frozen=True, slots=True)
class WriterOptions:
    """The options of a writer; see `Connection.writer`."""

    resources: tuple[str, ...]
    name: str | None
    packed: bool
    stage: w.StageSpec | None
    window_contents: int
    window_bytes: int
    incarnations: dict[str, str] | None
    extended: bool
    """Whether the broker and the profile have members beyond the RFC's."""
    local: bool = False
    """Whether packs may be written to memory that is shared with the broker."""
    confirm: str = "full"
    holder: str | None = None
    """A unique id of this writer among all writers of its name."""


class Pump:
    """See the module."""

    def __init__(self, loop: Loop, channel: Channel, options: WriterOptions) -> None:
        self.options = options
        self.lock = loop.lock()
        self.listener: Callable[[], None] = do_nothing
        """Called under `lock` after the lease was granted, contents were sent or settled, and at the end."""
        self.lease: w.DataLease | None = None
        self.error: MtlError | None = None
        self.scheduled = False
        """Whether `run` is posted and has not begun. Otherwise `publish` posts it. Guarded by `lock`."""
        self.max_content = MAX_CONTENT
        self.max_pack = MAX_PACK
        self.memory: Shared | None = None
        flow = WriterFlow if options.extended else RfcWriterFlow
        self.writer = flow(options.window_contents, options.window_bytes, confirm=options.confirm == "full")
        self.flow = ClientFlow(loop, channel, self, rfc=not options.extended)
        self._loop = loop
        self._channel = channel
        self._stage = options.stage
        self._written: dict[str, w.WrittenIn] = {}
        """Per resource the last epoch that certainly has contents of this writer."""
        self._unwritten: dict[str, w.WrittenIn] = {}
        """The epochs of this lease, for resources without new contents of this writer in the lease."""
        self._timer: Timer | None = None
        self._quiet: Timer | None = None

    @property
    def sending(self) -> bool:
        """Whether published contents are sent at once."""
        return self.flow.state is State.BOUND

    # --- sending --------------------------------------------------------------------------------------------

    def encode(self, batch: RecordBatch) -> ArrowBuffer:
        """Encode a batch as a pack, in the memory shared with the broker if there is room. One thread at a time."""
        memory = self.memory
        pack = (
            memory.encode(batch, self.max_pack) if memory is not None and batch.nbytes >= LOCAL_FROM else None
        )
        return encode_batch(batch, self.max_pack) if pack is None else pack

    @staticmethod
    def _with_span(content: c.Content, memory: Shared) -> c.Content:
        """The Content to send: if its body is in the shared memory, a Content with the span of this memory, else
        the Content itself.
        """
        span = memory.span(content.body)
        count = c.packed_count(content.properties) if span is not None else None
        if span is None or count is None:
            return content
        return c.Content(content.sequence, content.resource, span.properties(count), b"")

    def run(self) -> None:
        """Send up to PUMP waiting contents, then return, so that the loop can do other work."""
        with self.lock:
            self.scheduled = False
            batch = self.writer.pop_unsent(self._loop.clock(), PUMP) if self.sending else []
        contents = [sent_content.item for sent_content in batch]
        if self.memory is not None:
            contents = [self._with_span(content, self.memory) for content in contents]
        sent = self.flow.send_contents(contents)
        with self.lock:
            if sent < len(batch):
                self.writer.push_unsent(batch[sent:])
            elif self.sending:
                self._schedule()
            if not self.writer.waiting:
                self.listener()

    def _schedule(self) -> None:
        """Under the lock: schedule the next `run` for the time when contents are due."""
        due = self.writer.due
        if due is None or self.scheduled:
            return
        delay = due - self._loop.clock()
        if delay <= 0:
            self.scheduled = True
            self._loop.post(self.run)
        elif self._timer is None or self._timer.call is None:
            self._timer = self._loop.after(delay, self._run_delayed)

    def _run_delayed(self) -> None:
        self._timer = None
        self.run()

    # --- the flow's user ------------------------------------------------------------------------------------

    def lease_request(self) -> w.ConnectionWriter:
        """The request for a lease. Later requests are for another lease of the same name or stage."""
        o = self.options
        if not o.extended:
            return w.ConnectionWriter(resources=list(o.resources), confirm=o.confirm)
        return w.ConnectionWriter(
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
            local=machine_mark() if o.local else None,
        )

    def granted(self, lease: w.DataLease) -> None:
        """Check the granted members. The first lease has the number to begin with. Raises `DataLoss` if a later
        lease shows that confirmed contents are gone.
        """
        if self.options.extended:
            self._check(lease)
        last = max((lease.last or {}).values(), default=0)
        with self.lock:
            if self.lease is None:
                self.writer.start(last + 1)
            elif lease.last is not None and (lost := self.writer.missing(last)) is not None:
                raise self._lost(*lost)
            self.lease = lease
            self._unwritten = dict(lease.log_epochs or {})
            self.max_content = lease.max_content or MAX_CONTENT
            self.max_pack = lease.max_pack or MAX_PACK
            self.memory = Shared.of(lease.memory)
            if self._stage is not None and lease.stage is not None:
                self._stage = msgspec.structs.replace(self._stage, id=lease.stage)
            self.listener()

    def _check(self, lease: w.DataLease) -> None:
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
        return self._lost(1, confirmed + 1) if error.reason == w.UNKNOWN_WRITER and confirmed else error

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

    def command(self, command: c.Content | c.Confirm | c.Reject) -> None:
        """Handle a Confirm or Reject."""
        if isinstance(command, c.Content):
            return
        with self.lock:
            settled = self.writer.received(command, self._loop.clock())
            if settled:
                if self._unwritten and isinstance(command, c.Confirm):
                    self._note_epochs(settled)
                self.listener()
            self._schedule()

    def _note_epochs(self, settled: Sequence[Sent[c.Content]]) -> None:
        """Record the epochs of confirmed contents. Contents above the lease's `last` are new, so they are of the
        lease's epoch.
        """
        last = (self.lease.last if self.lease is not None else None) or {}
        for sent in settled:
            name = sent.item.resource or self.options.resources[0]
            if name in self._unwritten and sent.first > last.get(name, 0):
                self._written[name] = self._unwritten.pop(name)

    def answered(self, request: c.Summon | c.Dismiss, ok: bool) -> None:
        """No effect: writers do not summon."""

    def contents(self, _like: c.Content, _first: int, _bodies: Sequence[Buffer]) -> int:
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
        with self.lock:
            self.writer.lost()
            self.listener()

    def failed(self, error: MtlError) -> None:
        """Set the error, and wake the application."""
        with self.lock:
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
        self._channel.submit(Call(w.StageAbort(stages=[stage]), then, within=within))
        self.failed(Closed("the writer is closed"))

    def seal(self, then: Callable[[Outcome], None], *, within: float | None) -> None:
        """Close, which seals the stage. `then` gets a LeaseClosed with the stage, also if a restart of the broker ended
        the lease before: all contents are confirmed, so the stage is complete.
        """

        def ended(outcome: Outcome) -> None:
            if isinstance(outcome, Refused) and outcome.reason == w.UNKNOWN_LEASE:
                stage = self.lease.stage if self.lease is not None else None
                request = w.StageDescribe(stage=stage)
                self._channel.submit(Call(request, lambda found: then(self._sealed(found))))
            else:
                then(outcome)

        self.close(ended, within=within)

    def _sealed(self, found: Outcome) -> Outcome:
        stage = self.lease.stage if self.lease is not None else None
        for found_stage in found.stages if isinstance(found, w.StageList) else ():
            if found_stage.stage == stage:
                return w.LeaseClosed(
                    stage=w.StageSealed(
                        stage=found_stage.stage, contents=found_stage.contents, bytes=found_stage.bytes
                    )
                )
        gone = Refused(404, w.UNKNOWN_STAGE, f"stage {stage} does not exist any more", stage=stage)
        return found if isinstance(found, MtlError) else gone

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
