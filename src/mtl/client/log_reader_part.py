"""The loop's part of a reader of a broker with positions: order, gaps, losses, groups (PROTOCOL.md 5.2).

The application's part (`mtl.client.reading`) takes from `queue` and writes its progress to `finished`. Each attribute
has one writer: the application's part or the loop's.
"""

from __future__ import annotations

from collections.abc import Sequence

from mtl.client.control import Call, Channel, Outcome
from mtl.client.flow import State
from mtl.client.loop import Loop, Timer
from mtl.client.reader_part import ReaderOptions, ReaderPart
from mtl.errors import DataLoss, Malformed, MtlError, NotGranted, Refused
from mtl.net.machine import machine_mark
from mtl.protocol.reading import Delivery, Gap, PlainRun, ReaderFlow
from mtl.wire import commands, control
from mtl.wire.fields import Buffer
from mtl.wire.history import History


class LogReaderPart(ReaderPart):
    """See the module."""

    def __init__(self, loop: Loop, channel: Channel, options: ReaderOptions) -> None:
        super().__init__(loop, channel, options)
        self.finished = 0
        start = options.start if isinstance(options.start, int) else None
        self._reader = ReaderFlow(start, options.until, packed=options.packed)
        self._history: History | None = None
        """The epochs of the last lease: those of the contents that were read on it."""
        self._place: tuple[int, str | None] | None = None
        """A position set by `_continue_at`, not by reading, and the epoch of the content before it if known."""
        self._incarnation = options.incarnation
        self._holding_epoch = options.holding_epoch
        self._confirmed = 0
        self._confirmed_log_epoch: str | None = None
        self._credit_timer: Timer | None = None

    # --- posted by the application's side -------------------------------------------------------------------

    def finish(self, done: Delivery | PlainRun) -> None:
        """Note the application's progress."""
        self.finished = done.end

    def credit(self) -> None:
        """Confirm the contents below `finished` when a Confirm is due."""
        self._credit_timer = None
        # contents above `next` are of another copy of the log (`_continue_at`)
        if self.finished <= (self._reader.next or self.finished):
            self._reader.finish(self.finished)
        if self.options.confirm == "none":
            return
        now = self._loop.clock()
        confirm = self._reader.credit(now, idle=True)
        if confirm is not None:
            self.flow.send(confirm)
        elif self._reader.owes:
            self._later()

    def confirm(self, sequence: int, log_epoch: str | None = None) -> None:
        """Confirm up to `sequence`, a content of `log_epoch`, at once, even if another reader has read it."""
        if sequence > self._confirmed:
            self._confirmed, self._confirmed_log_epoch = sequence, log_epoch
            self.flow.send(self._reader.confirm(sequence, self._loop.clock()))

    def send_instead(self, first: int) -> None:
        """Read again from `first` on, through the socket: this process cannot read the broker's files."""
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

    def lease_request(self) -> control.ConnectionReader:
        """The request for a lease of the remaining range, with all members that a `log` broker must echo.

        For a holder that never reads, the range begins after its last Confirm, because earlier contents may be
        lost.
        """
        o = self.options
        if self._confirmed and not self._summoned and self._confirmed >= (self._reader.next or 0):
            self._continue_at(self._confirmed + 1, self._confirmed_log_epoch)
        return control.ConnectionReader(
            resources=[o.resource],
            confirm=o.confirm,
            from_=o.start if self._reader.next is None else self._reader.next,
            until=o.until,
            window=control.Window(contents=o.window_contents, bytes=o.window_bytes),
            packed=o.packed,
            group=o.group,
            holder=o.holder,
            epoch=self._holding_epoch,
            incarnation=self._incarnation,
            log_epoch=self.log_epoch(self._reader.next),
            request_id=self.flow.id,
            binding=True,
            local=machine_mark() if self.local else None,
        )

    def log_epoch(self, position: int | None) -> str | None:
        """The epoch of the content before a position that the reader has reached, if known."""
        if position is None:
            return None
        if self._place is not None and position == self._place[0]:
            return self._place[1]
        if self._history is None:
            return self.options.log_epoch if position == self.options.start else None
        return self._history.epoch_of(position)

    def granted(self, lease: control.DataLease) -> None:
        """Check the echo, which is the whole negotiation (PROTOCOL.md 5.2)."""
        window = self._check(lease)
        gap = self._reader.granted(lease.from_, window.contents or 0, window.bytes or 0)
        self._incarnation = lease.incarnation or self._incarnation
        self._holding_epoch = lease.epoch if self.options.group is not None else self._holding_epoch
        self._check_range(lease)
        if gap is not None:
            self._missing(gap.first, gap.end)
        self.lease = lease
        self._check_end()
        self.listener()

    def _check(self, lease: control.DataLease) -> control.Window:
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
            return control.Window()
        if lease.window is None or not lease.window.contents or not lease.window.bytes:
            raise NotGranted(endpoint, "window")
        return lease.window

    def _check_range(self, lease: control.DataLease) -> None:
        """Note the epochs of the contents to come. Raises `DataLoss` if the log no longer contains the end of the
        range, or has another epoch there.
        """
        until, epoch = self.options.until, self.options.until_epoch
        self._history, self._place = History.of(lease.history, lease.next or 0), None
        diverges_at = (
            self._history.diverges_at(until, epoch) if until is not None and epoch is not None else None
        )
        if diverges_at is not None:
            raise DataLoss(
                self.options.resource,
                max(diverges_at, lease.from_ or 0),
                until or 0,
                f"resource {self.options.resource!r}: contents {diverges_at} to {(until or 0) - 1} of "
                f"the epoch {epoch} are no longer in the log: the broker's data is another copy, or a crash lost "
                "unsynced contents",
            )

    def refused(self, error: Refused) -> Refused | None:
        """Skip lost contents with `skip_lost`; every other refusal is final."""
        o, place = self.options, self._reader.next
        if isinstance(error, DataLoss) and o.skip_lost and self._is_ahead(error):
            self._missing(error.first, error.end, error.resume)
            return None
        if error.reason == control.INCARNATION and self.lease is not None and place is not None:
            return DataLoss(o.resource, place, place, f"{error.message} (reading was at {place})")
        return error

    def _is_ahead(self, loss: DataLoss) -> bool:
        """Whether a loss begins or ends at the reader's position and the broker will not report it again. It will
        not if the reader continues at another position, or at the same one without the epoch.
        """
        place = self._reader.next
        if place is None:  # the loss is at a group's cursor
            return loss.end > loss.first
        at_position = place in {loss.first, loss.end}
        return at_position and (loss.resume != place or self.log_epoch(place) is not None)

    def bound(self) -> None:
        """Summon, and repeat the last Confirm, which may have been lost with the old connection."""
        if self._confirmed:
            self.flow.send(commands.Confirm(self._confirmed, multiple=True))
        if self._summoned:
            self.flow.send_request(commands.Summon, self.options.resource)

    def command(self, command: commands.Content | commands.Confirm | commands.Reject) -> None:
        """Handle a Content."""
        if not isinstance(command, commands.Content):
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

    def contents(self, like: commands.Content, first: int, bodies: Sequence[Buffer]) -> int:
        """Handle contents that differ from an earlier one only in number and body."""
        run = self._reader.received_run(like, first, bodies)
        if run is None:
            return 0
        self._arrived.append(run)
        return len(run.bodies)

    def down(self) -> None:
        """Keep the delivered contents; the broker sends the others again."""
        self._reader.lost()

    # --- gaps and the end -----------------------------------------------------------------------------------

    def _explain(self, gap: Gap) -> None:
        """Find out whether retention or the transport lost the contents of a gap (PROTOCOL.md 5.2)."""

        def described(outcome: Outcome) -> None:
            if self.error is not None or self.ended:
                return
            if isinstance(outcome, control.DescriptionList) and outcome.resources:
                try:
                    earliest = outcome.resources[0].earliest
                    if earliest > gap.first:
                        self._missing(gap.first, min(earliest, gap.end))
                except Refused as error:  # a loss, or the broker cannot open the log
                    self._stop(error)
                else:
                    self.flow.restart()
            else:
                self._stop(outcome if isinstance(outcome, MtlError) else Malformed("an empty description"))

        self._channel.submit(Call(control.ResourceDescribe(resource=self.options.resource), described))

    def _missing(self, first: int, end: int, resume: int | None = None) -> None:
        """Contents [first, end) are lost: skip them and continue at `resume` (`end`), or raise `DataLoss`."""
        if not self.options.skip_lost:
            raise DataLoss(self.options.resource, first, end)
        self.lost.append(Gap(first, end))
        self._continue_at(end if resume is None else resume)

    def _continue_at(self, at: int, log_epoch: str | None = None) -> None:
        """Continue at a position that reading has not reached. If it is an earlier one, the contents from there on
        are of another copy of the log, and contents that the application has not taken are dropped.
        """
        if at < (self._reader.next or 0):
            self.queue.clear()
            self._arrived.clear()
            self._confirmed = min(self._confirmed, at - 1)
        self._reader.restart(at)
        self._place = at, log_epoch

    def _stop(self, error: MtlError) -> None:
        self.flow.close(lambda _: None)
        self.failed(error)

    def _check_end(self) -> None:
        if self._reader.ended and not self.ended:
            self.ended = True
            self.listener()

    # --- closing --------------------------------------------------------------------------------------------

    def _has_unacknowledged_confirm(self) -> bool:
        return self._confirmed > 0 and self.flow.state is State.BOUND

    @property
    def start(self) -> int | None:
        """The sequence at which reading begins or, after losses, continues; None if unknown."""
        return self._reader.next
