"""Reading: contents one by one, or packs of many as Arrow batches. See `Connection.reader`."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from itertools import repeat

from mtl.client.contents import Content, Pack
from mtl.client.incoming import Incoming
from mtl.client.io import Loop
from mtl.client.leased import Leased
from mtl.client.local import NotLocal, Places
from mtl.client.settings import Settings
from mtl.errors import MtlError, Unreachable
from mtl.protocol.reading import Delivery, Gap, Run
from mtl.wire.commands import delivery_timestamp, packed_count
from mtl.wire.fields import EMPTY, Buffer
from mtl.wire.packs import ArrowBuffer, decode_pack, encode_pack, trust_pack, unpacked

log = logging.getLogger("mtl.client")


class Reader(Leased):
    """A lease to read one resource from a position on, in order, without gaps or duplicates.

    Iteration gives `Content`s and ends at `until`, or never; `batches` gives `Pack`s. A request for the next item marks
    the last one as consumed. Only then the broker sends more, so a slow application takes at most one window of memory.
    The holder of a group gives this credit by `confirm`, which also moves the group's cursor. The lease survives
    restarts of the broker. For one thread at a time, except `confirm`, `ping_holder` and `close`.

    Any method may raise `DataLoss` if contents are gone, `Fenced` if another holder took over, `Unreachable` if the
    broker does not answer for `retry_deadline`.
    """

    what = "reader"

    def __init__(self, loop: Loop, settings: Settings, feed: Incoming, closed: Callable[[], None]) -> None:
        super().__init__(loop, settings, feed, closed)
        self._feed = feed
        self._summoned = False
        self._current: Iterator[Content] | None = None
        self._taken: Delivery | Run | None = None
        self._position: int | None = None
        self._manual = feed.options.group is not None and feed.options.epoch is None
        self._places = Places()
        self._unposted_contents = 0
        self._unposted_octets = 0

    def begin(self) -> None:
        """Begin at the start of the lease, which was granted just now."""
        self._position = self._feed.start
        try:
            self._look()
        except NotLocal as reason:
            assert self._position is not None
            self._send_instead(self._position, reason)

    # --- what was granted -----------------------------------------------------------------------------------

    @property
    def resource(self) -> str:
        """The name of the resource."""
        return self._feed.options.resource

    @property
    def position(self) -> int | None:
        """The sequence of the next content; None if the server has no positions (RFC 11 only, `test`)."""
        return None if self._feed.rfc else self._position

    @property
    def epoch(self) -> int | None:
        """The epoch of the group's holding, for members (`Connection.reader`)."""
        return self._feed.lease.epoch if self._feed.lease is not None else None

    @property
    def incarnation(self) -> str | None:
        """The resource's incarnation."""
        return self._feed.lease.incarnation if self._feed.lease is not None else None

    @property
    def log_epoch(self) -> str | None:
        """The epoch of the content before `position`, or None if unknown. With both, another reader can continue, and
        gets a `DataLoss` if the broker's log is another copy.
        """
        return self._feed.log_epoch(self._position)

    @property
    def group_position(self) -> int | None:
        """The group's position at the time when this reader became its holder."""
        return self._feed.lease.position if self._feed.lease is not None else None

    @property
    def error(self) -> MtlError | None:
        """The error that ended the reader, or None. It is raised after the contents delivered before."""
        return self._feed.error

    @property
    def sees_files(self) -> bool:
        """False if the broker granted its files and this process cannot read them."""
        return self._feed.local or not self._feed.options.local

    @property
    def lost(self) -> list[Gap]:
        """Lost ranges [first, end) that were skipped, with `skip_lost`."""
        return list(self._feed.lost)

    # --- for an event loop, which must not wait (mtl.client.aio) ----------------------------------------------

    def listen(self, listener: Callable[[], None]) -> None:
        """Call `listener`, in the IO thread, whenever `next(0)` may have news: contents, the end, an error."""
        self._feed.listener = listener

    def rest(self) -> None:
        """Confirm the consumed contents, since the application waits for more."""
        if self._unposted_contents:
            self._post_credit()

    @property
    def ended(self) -> bool:
        """Whether every content up to `until` was returned."""
        return self._feed.ended and not self._feed.queue and self._current is None

    # --- contents -------------------------------------------------------------------------------------------

    def next(self, timeout: float | None = None) -> Content | None:
        """The next content; None after `timeout` seconds without one (None: no limit), and at the end of the range."""
        while True:
            if self._current is not None:
                content = next(self._current, None)
                if content is not None:
                    self._position = content.sequence + 1
                    return content
                self._current = None
            if self._feed.options.packed:
                pack = self._next_pack(timeout)
                if pack is None:
                    return None
                self._current = _unpacked(pack)
                continue
            delivery = self._take(timeout)
            if delivery is None:
                return None
            if isinstance(delivery, Run):
                self._current = _alike(self.resource, delivery)
                continue
            self._position = delivery.end
            one = delivery.content
            return Content(self.resource, one.sequence, one.properties, bytes(one.body))

    def some(self, contents: int, octets: int, timeout: float | None = None) -> list[Content]:
        """The next content, and others that came with it: at most `contents`, ending at `octets` octets of bodies.

        An empty list after `timeout` seconds, and at the end of the range. The next call marks them as consumed.
        """
        content = self.next(timeout)
        if content is None:
            return []
        together = [content]
        room = octets - len(content.body)
        while self._current is not None and room > 0 and len(together) < contents:
            content = next(self._current, None)
            if content is None:
                self._current = None
            else:
                together.append(content)
                room -= len(content.body)
        self._position = together[-1].sequence + 1
        return together

    def __iter__(self) -> Iterator[Content]:
        """Every content up to `until`; without `until` it never ends."""
        while True:
            content = self.next()
            if content is None:
                return
            yield content
            if self._current is not None:
                # The rest of a pack or run: faster than a call of `self.next` for each.
                for content in self._current:
                    self._position = content.sequence + 1
                    yield content
                self._current = None

    def batches(self, timeout: float | None = None) -> Iterator[Pack]:
        """Every pack up to `until`, cut to the range; ends early if none comes for `timeout` seconds."""
        while (pack := self._next_pack(timeout)) is not None:
            self._position = pack.first + pack.count
            yield pack

    def _next_pack(self, timeout: float | None) -> Pack | None:
        while (delivery := self._take(timeout)) is not None:
            try:
                pack = self._pack(delivery)
            except NotLocal as reason:
                self._taken = None  # it could not be read, so it is not consumed
                if self._feed.local:
                    self._send_instead(delivery.first, reason)
            else:
                return pack
        return None

    def _pack(self, delivery: Delivery | Run) -> Pack:
        """A delivery's new contents as a batch. NotLocal if it is in files that this process cannot read."""
        count = delivery.end - delivery.first
        if isinstance(delivery, Run):
            properties = delivery.like.properties
            # This pack is never sent, so the size limit does not apply.
            octets = delivery.size + count * len(properties)
            batch = trust_pack(encode_pack(delivery.bodies, [properties] * count, octets))
            return Pack(self.resource, delivery.first, count, batch, delivery_timestamp(properties))
        content = delivery.content
        if self._feed.options.packed:
            whole = packed_count(content.properties) or 1
            batch = decode_pack(self._body(delivery), whole, check_properties=False)
            batch = batch.slice(delivery.skip, count)
        else:
            batch = decode_pack(encode_pack([content.body], [content.properties]), 1, check_properties=False)
        return Pack(self.resource, delivery.first, count, batch, delivery_timestamp(content.properties))

    # --- packs in the broker's files ------------------------------------------------------------------------

    def _body(self, delivery: Delivery) -> Buffer | ArrowBuffer:
        if delivery.place is None:
            return delivery.content.body
        if not self._feed.local:
            raise NotLocal("it was sent before the broker stopped sending places")
        self._look()
        return self._places.read(delivery.place)

    def _look(self) -> None:
        """Open the directory that the lease grants. NotLocal if this process cannot read it."""
        files = self._feed.lease.local if self._feed.lease is not None else None
        if files is not None:
            self._places.grant(files)

    def _send_instead(self, first: int, reason: NotLocal) -> None:
        """Read from `first` on through the socket."""
        log.info("%r is read through the socket from %d on: %s", self.resource, first, reason)
        done = threading.Event()

        def ask() -> None:
            self._feed.send_instead(first)
            done.set()

        self._loop.post(ask)
        while not done.wait(self._settings.request_timeout):
            self._check()

    # --- waiting for more -----------------------------------------------------------------------------------

    def _take(self, timeout: float | None) -> Delivery | Run | None:
        """The next delivery; the one before counts as consumed. None at the end of the range or after `timeout`."""
        self._check()
        feed = self._feed
        if self._taken is not None:
            self._finish(self._taken)
        if not self._summoned:
            self._summoned = True
            self._loop.post(feed.summon)
        if not feed.queue:
            self._wait(timeout)
        try:
            self._taken = feed.queue.popleft()
        except IndexError:  # nothing came, or it was dropped: it was of another copy of the log
            pass
        else:
            return self._taken
        if not feed.ended and feed.error is not None:
            raise feed.error
        return None

    def _finish(self, done: Delivery | Run) -> None:
        self._taken = None
        if self._manual:
            return
        self._feed.finish(done)
        self._unposted_contents += done.end - done.first
        self._unposted_octets += done.size
        options = self._feed.options
        if (
            self._unposted_octets * 4 >= options.window_bytes
            or self._unposted_contents * 4 >= options.window_contents
        ):
            self._post_credit()

    def _post_credit(self) -> None:
        self._unposted_contents = self._unposted_octets = 0
        self._loop.post(self._feed.credit)

    def _wait(self, timeout: float | None) -> None:
        """Wait for a delivery, the end, or an error. Consumed contents are confirmed after a while."""
        feed = self._feed
        deadline = None if timeout is None else time.monotonic() + timeout
        with feed.waiting():
            while not (feed.queue or feed.ended or feed.error is not None):
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    return
                owed = feed.credit_delay_s if self._unposted_contents else None
                patience = min((x for x in (left, owed) if x is not None), default=None)
                if not feed.condition.wait(patience) and owed is not None:
                    self._post_credit()

    # --- confirming -----------------------------------------------------------------------------------------

    def confirm(self, sequence: int, *, log_epoch: str | None = None) -> None:
        """Confirm every content up to `sequence`. For a holder this moves the group's cursor, never back. For a server
        of RFC 11 only, `sequence` is the server's own number of the content.

        `log_epoch` is the epoch of that content if another reader read it: after a restart of the broker nothing is
        confirmed in another copy of the log.

        Returns before the broker has it; `ping_holder` waits for that, and returns the group's position. A holder that
        never reads holds the resource from the last confirmed content on after a restart of the broker.
        """
        self._check()
        self._loop.post(lambda: self._feed.confirm(sequence, log_epoch))

    def ping_holder(self, timeout: float | None = None) -> int | None:
        """Wait until the broker has processed every `confirm` so far, and answers that this reader is still the holder.

        Returns the group's current position in the broker. It is behind the content confirmed here if another reader of
        the same `holder` has confirmed less. None for a reader without a group, and from brokers without positions in
        the Pong.

        Raises `Fenced` if another holder took over, `Unreachable` if there is no answer for `timeout` seconds (default:
        the connection's `retry_deadline`).
        """
        self._check()
        patience = self._settings.retry_deadline if timeout is None else timeout
        feed, answered = self._feed, threading.Event()
        told: list[int | None] = []

        def pong(position: int | None) -> None:
            told.append(position)
            answered.set()
            feed.notify()

        deadline = time.monotonic() + patience
        with feed.waiting():
            self._loop.post(lambda: feed.flow.ping(pong))
            while not answered.is_set():
                if feed.error is not None:
                    raise feed.error
                left = deadline - time.monotonic()
                if left <= 0:
                    raise Unreachable(self._settings.endpoint, patience, "waiting for the Pong of a holder")
                feed.condition.wait(left)
        return told[0]

    # --- closing --------------------------------------------------------------------------------------------

    def close(self) -> None:
        """End the lease. May be called again."""
        if self._open:
            self._places.close()
        super().close()


def _alike(resource: str, run: Run) -> Iterator[Content]:
    properties = run.like.properties
    stamp = delivery_timestamp(properties)
    sequences = range(run.first, run.end)
    return map(
        Content, repeat(resource), sequences, repeat(properties), map(bytes, run.bodies), repeat(stamp)
    )


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
