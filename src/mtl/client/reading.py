"""The application's part of a reader that does not wait: the common base of both clients' readers.

It takes the deliveries that `mtl.client.reader_part` has put into its queue, unpacks them, and gives credit for
consumed contents. Waiting for contents is in `mtl.client.reader` and `mtl.client.aio.reader`.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable, Iterator
from itertools import repeat
from operator import index

from mtl.client.contents import Content, Pack
from mtl.client.lease_handle import LeaseHandle
from mtl.client.local_packs import LocalPacks, NotLocal
from mtl.client.loop import Loop
from mtl.client.reader_part import ReaderPart
from mtl.client.settings import Settings
from mtl.errors import MtlError, OptionError
from mtl.protocol.reading import Delivery, Gap, PlainRun
from mtl.wire.commands import delivery_timestamp, packed_count
from mtl.wire.fields import EMPTY, Buffer
from mtl.wire.limits import MAX_SEQUENCE
from mtl.wire.packs import ArrowBuffer, decode_pack, encode_pack, trust_pack, unpacked

log = logging.getLogger("mtl.client")


class ReadingLease(LeaseHandle):
    """See the module. Methods are for one thread or task at a time, except `_confirm` and `_ping`."""

    kind = "reader"

    _part: ReaderPart

    def __init__(self, loop: Loop, settings: Settings, part: ReaderPart, closed: Callable[[], None]) -> None:
        super().__init__(loop, settings, part, closed)
        self._summoned = False
        self._current: Iterator[Content] | None = None
        self._delivered: Delivery | PlainRun | None = None
        self._position: int | None = None
        self._manual = part.options.group is not None and part.options.holding_epoch is None
        self._local_packs = LocalPacks()
        self._unposted_contents = 0
        self._unposted_octets = 0
        self._logged = 0

    def begin(self) -> None:
        """Begin at the start of the lease, which has just been granted."""
        self._position = self._part.start
        try:
            self._open_directory()
        except NotLocal as reason:
            assert self._position is not None
            self._send_instead(self._position, reason)

    # --- what was granted -----------------------------------------------------------------------------------

    @property
    def resource(self) -> str:
        """The name of the resource."""
        return self._part.options.resource

    @property
    def position(self) -> int | None:
        """The sequence of the next content; None if the server has no positions (RFC 11 only, `test`)."""
        return None if self._part.rfc else self._position

    @property
    def holding_epoch(self) -> int | None:
        """The epoch of the group's holding, for members (`Connection.reader`)."""
        return self._part.lease.epoch if self._part.lease is not None else None

    @property
    def incarnation(self) -> str | None:
        """The resource's incarnation."""
        return self._part.lease.incarnation if self._part.lease is not None else None

    @property
    def log_epoch(self) -> str | None:
        """The epoch of the content before `position`, or None if unknown. Another reader that begins with both gets
        a `DataLoss` if the broker's log is another copy.
        """
        return self._part.log_epoch(self._position)

    @property
    def group_position(self) -> int | None:
        """The group's position at the time when this reader became its holder."""
        return self._part.lease.position if self._part.lease is not None else None

    @property
    def error(self) -> MtlError | None:
        """The error that ended the reader, or None. It is raised after the contents delivered before."""
        return self._part.error

    @property
    def sees_files(self) -> bool:
        """False if the broker granted its files and this process cannot read them."""
        return self._part.local or not self._part.options.local

    @property
    def lost(self) -> list[Gap]:
        """Lost ranges [first, end) that were skipped, with `skip_lost`."""
        return list(self._part.lost)

    # --- contents -------------------------------------------------------------------------------------------

    def _next(self) -> Content | None:
        """The next content if it has arrived, else None."""
        try:
            return self._advance()
        except BaseException:  # interrupted, perhaps after a content was taken: begin again at the position
            self._current = None
            raise

    def _advance(self) -> Content | None:
        while True:
            if self._current is not None:
                content = next(self._current, None)
                if content is not None:
                    self._position = content.sequence + 1
                    return content
                self._current = None
            if self._part.options.packed:
                pack = self._next_pack()
                if pack is None:
                    return None
                self._current = _unpacked(pack)
                continue
            delivery = self._next_delivery()
            if delivery is None:
                return None
            if isinstance(delivery, PlainRun):
                self._current = _alike(self.resource, delivery, self._reached(delivery))
                continue
            received = delivery.content
            content = Content(self.resource, received.sequence, received.properties, bytes(received.body))
            self._position = delivery.end
            return content

    def _available(self, contents: int, octets: int) -> list[Content]:
        """The next content and others that came with it, if they have arrived."""
        content = self._next()
        if content is None:
            return []
        first = content.sequence
        try:
            together = [content]
            room = octets - len(content.body)
            while self._current is not None and room > 0 and len(together) < contents:
                content = next(self._current, None)
                if content is None:
                    self._current = None
                else:
                    together.append(content)
                    room -= len(content.body)
        except BaseException:  # interrupted
            self._current, self._position = None, first
            raise
        self._position = together[-1].sequence + 1
        return together

    def _next_pack(self) -> Pack | None:
        """The next pack, cut to the range and to the contents from the position on, if it has arrived; else None."""
        self._current = None
        while (delivery := self._next_delivery()) is not None:
            try:
                pack = self._pack(delivery)
            except NotLocal as reason:
                self._delivered = None  # it could not be read, so it is not consumed
                if self._part.local:
                    self._send_instead(delivery.first + self._reached(delivery), reason)
            else:
                return pack.after(self._reached(delivery))
        return None

    def _reached(self, delivery: Delivery | PlainRun) -> int:
        """The number of contents of a delivery that the application has already."""
        return 0 if self._position is None else max(0, self._position - delivery.first)

    def _pack(self, delivery: Delivery | PlainRun) -> Pack:
        """A delivery's new contents as a batch. NotLocal if it is in files that this process cannot read."""
        count = delivery.end - delivery.first
        if isinstance(delivery, PlainRun):
            properties = delivery.like.properties
            # This pack is never sent, so the size limit does not apply.
            octets = delivery.size + count * len(properties)
            batch = trust_pack(encode_pack(delivery.bodies, [properties] * count, octets))
            return Pack(self.resource, delivery.first, count, batch, delivery_timestamp(properties))
        content = delivery.content
        if self._part.options.packed:
            whole = packed_count(content.properties) or 1
            batch = decode_pack(self._body(delivery), whole, check_properties=False)
            batch = batch.slice(delivery.skip, count)
        else:
            batch = decode_pack(encode_pack([content.body], [content.properties]), 1, check_properties=False)
        return Pack(self.resource, delivery.first, count, batch, delivery_timestamp(content.properties))

    # --- packs in the broker's files ------------------------------------------------------------------------

    def _body(self, delivery: Delivery) -> Buffer | ArrowBuffer:
        if delivery.file_range is None:
            return delivery.content.body
        if not self._part.local:
            raise NotLocal("it was sent before the broker's switch to the socket")
        self._open_directory()
        return self._local_packs.read(delivery.file_range)

    def _open_directory(self) -> None:
        """Open the directory that the lease grants. NotLocal if this process cannot read it."""
        files = self._part.lease.local if self._part.lease is not None else None
        if files is not None:
            self._local_packs.grant(files)

    def _send_instead(self, first: int, reason: NotLocal) -> None:
        """Read from `first` on through the socket."""
        log.info("%r is read through the socket from %d on: %s", self.resource, first, reason)
        self._in_loop(lambda: self._part.send_instead(first))

    @abstractmethod
    def _in_loop(self, call: Callable[[], None]) -> None:
        """Run `call` in the loop before this returns."""

    # --- deliveries -----------------------------------------------------------------------------------------

    def _next_delivery(self) -> Delivery | PlainRun | None:
        """The next delivery if it has arrived; the one before is consumed. None without one, and at the end of the
        range. The same one again if the application has not got all of it, because a call was interrupted.
        """
        self._check()
        part = self._part
        if len(part.lost) > self._logged:
            self._log_lost()
        before = self._delivered
        if before is not None:
            if self._position is not None and self._position < before.end:
                return before
            self._finish(before)
        if not self._summoned:
            self._loop.post(part.summon)
            self._summoned = True
        error = part.error  # read before the queue: contents that were delivered before the error come first
        try:
            delivery = part.queue[0]
            self._delivered, self._position = delivery, delivery.first
            del part.queue[0]
        except IndexError:
            if error is not None and not part.ended:
                raise error from None
            return None
        return delivery

    def _log_lost(self) -> None:
        """Log the ranges that were skipped since the last call. The loop does not log (`mtl.client.notice`)."""
        lost = self._part.lost
        while self._logged < len(lost):
            gap = lost[self._logged]
            self._logged += 1
            log.warning(
                "resource %r: contents %d to %d are lost and are skipped",
                self.resource,
                gap.first,
                gap.end - 1,
            )

    def _finish(self, done: Delivery | PlainRun) -> None:
        if not self._manual:
            self._count_finished(done)
        self._delivered = None

    def _count_finished(self, done: Delivery | PlainRun) -> None:
        self._part.finish(done)
        self._unposted_contents += done.end - done.first
        self._unposted_octets += done.size
        options = self._part.options
        if (
            self._unposted_octets * 4 >= options.window_bytes
            or self._unposted_contents * 4 >= options.window_contents
        ):
            self._post_credit()

    def _post_credit(self) -> None:
        self._loop.post(self._part.credit)
        self._unposted_contents = self._unposted_octets = 0

    @property
    def _credit_due_s(self) -> float | None:
        """The time in seconds that a wait may last before consumed contents are confirmed; None if there are
        none.
        """
        return self._part.credit_delay_s if self._unposted_contents else None

    def _is_wait_over(self) -> bool:
        """Whether a wait can end: there is a delivery, the end of the range, or an error."""
        part = self._part
        return bool(part.queue) or part.ended or part.error is not None

    @property
    def _is_over(self) -> bool:
        """Whether every content up to `until` was delivered."""
        return self._part.ended and not self._part.queue

    # --- confirming and the end -----------------------------------------------------------------------------

    def _confirm(self, sequence: int, log_epoch: str | None) -> None:
        self._check()
        sequence = index(sequence)
        if not 0 <= sequence <= MAX_SEQUENCE:
            raise OptionError(f"{sequence} is not a sequence, a number from 0 to {MAX_SEQUENCE}")
        self._loop.post(lambda: self._part.confirm(sequence, log_epoch))

    def _ping(self) -> list[int | None]:
        """Ping the broker. The result gets the position in the Pong, and the listener is called."""
        self._check()
        part, positions = self._part, list[int | None]()

        def pong(position: int | None) -> None:
            positions.append(position)
            part.listener()

        self._loop.post(lambda: part.flow.ping(pong))
        return positions

    def _shut(self) -> bool:
        if self._open:
            self._local_packs.close()
        return super()._shut()


def _alike(resource: str, run: PlainRun, skip: int) -> Iterator[Content]:
    properties = run.like.properties
    stamp = delivery_timestamp(properties)
    sequences, bodies = range(run.first + skip, run.end), run.bodies[skip:] if skip else run.bodies
    return map(Content, repeat(resource), sequences, repeat(properties), map(bytes, bodies), repeat(stamp))


def _unpacked(pack: Pack) -> Iterator[Content]:
    tables, bodies = unpacked(pack.batch)
    return map(
        Content,
        repeat(pack.resource),
        range(pack.first, pack.first + pack.count),
        repeat(EMPTY) if tables is None else tables,
        map(bytes, bodies),
        repeat(pack.timestamp_us),
    )
