"""Writing: contents one by one, or packs of many. See `Connection.writer`."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from types import TracebackType
from typing import Protocol, Self

import pyarrow as pa

from mtl.client.control import Outcome, Waiter
from mtl.client.io import Loop, process
from mtl.client.limits import LINGER_S, MAX_UNSENT, PACK_TARGET, PACK_TARGET_CONTENTS
from mtl.client.pump import Pump
from mtl.client.settings import Settings
from mtl.errors import (
    Closed,
    ContentRefused,
    ContentTooLarge,
    LocalError,
    MtlError,
    OptionError,
    Refused,
    Unreachable,
)
from mtl.limits import MAX_PACK_CONTENTS
from mtl.protocol.writing import RefusedContent
from mtl.wire import control as w
from mtl.wire.commands import packed_properties
from mtl.wire.fields import EMPTY, Buffer, Value, encode_properties, encode_short
from mtl.wire.packs import decode_pack, encode_pack, pack_size

_check_name = lru_cache(maxsize=1024)(encode_short)
"""Cached, since a writer of several resources checks a name for every content."""


class _Ending(Protocol):
    def __call__(self, then: Callable[[Outcome], None], *, within: float | None) -> None: ...


class Patience:
    """A time limit of `limit` seconds without progress, and optionally a `deadline` (monotonic) even with progress."""

    __slots__ = ("_deadline", "_limit", "_progress", "_since", "began")

    def __init__(self, limit: float, deadline: float | None = None) -> None:
        self.began = self._since = time.monotonic()
        self._limit = limit
        self._deadline = deadline
        self._progress: int | None = None

    def left(self, progress: int) -> float:
        """Seconds until the limit or the deadline; `progress` grows whenever contents are settled."""
        now = time.monotonic()
        if progress != self._progress:
            self._progress, self._since = progress, now
        until = self._since + self._limit
        return (until if self._deadline is None else min(until, self._deadline)) - now


_STAGE_REFUSED = (
    "the broker can never accept it, or a failing disk has stopped the stage (`mtl stages list` shows which); "
    "write to another stage"
)


class Writer:
    """A lease to write to one resource, or to several.

    `send` and `send_pack` return the publishing number once the content is in the window; `flush` waits until all
    contents are confirmed, that is durable, and so does `close` (and the end of a `with` block without an error).
    Contents lost by a connection or a restart of the broker are sent again, and the broker drops duplicates. `send`
    blocks while the window of unconfirmed contents is full. Thread-safe.

    Any method may raise `ContentRefused` for a content that the broker rejected for good, once for each; `Fenced` if
    another writer of the name took over; `Unreachable` if the broker does not answer for `retry_deadline`.
    """

    def __init__(
        self,
        loop: Loop,
        settings: Settings,
        pump: Pump,
        ask: Callable[[w.Request], w.Reply],
        closed: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._settings = settings
        self._pump = pump
        self._ask = ask
        self._closed = closed
        self._pid = process()
        self._open = True
        self._only = pump.options.resources[0] if len(pump.options.resources) == 1 else None
        self._packed = pump.options.packed
        self._sending = threading.Lock()
        """Acquired before the pump's lock: sends run one after the other, also while one waits for room."""
        self._encoding = threading.Lock()
        """Packs are encoded one after the other, also while a send waits for room."""
        self._bodies: list[bytes] = []
        self._tables: list[bytes] = []
        self._target = ""
        self._octets = 0

    # --- what was granted -----------------------------------------------------------------------------------

    @property
    def name(self) -> str | None:
        """The name under which the broker remembers the numbers; None for a staged or unnamed writer."""
        return self._pump.options.name

    @property
    def last(self) -> dict[str, int]:
        """Per resource, the last number of this name that the broker had when the lease was granted."""
        lease = self._pump.lease
        return dict(lease.last or {}) if lease is not None else {}

    @property
    def stage(self) -> str | None:
        """The public id of the stage."""
        return self._pump.lease.stage if self._pump.lease is not None else None

    @property
    def max_content(self) -> int:
        """Octets of the largest content that the broker accepts."""
        return self._pump.max_content

    @property
    def max_pack(self) -> int:
        """Octets of the largest pack."""
        return self._pump.max_pack

    @property
    def confirmed(self) -> int:
        """The highest number up to which all contents are settled."""
        with self._pump.lock:
            return self._pump.writer.confirmed

    @property
    def unconfirmed(self) -> int:
        """The number of contents that are not settled."""
        with self._pump.lock:
            return self._pump.writer.unconfirmed + len(self._bodies)

    # --- sending --------------------------------------------------------------------------------------------

    def send(
        self, body: Buffer, properties: Mapping[str, Value] | None = None, *, resource: str | None = None
    ) -> int:
        """Publish one content and return its number. `resource` is required if the lease has several.

        On a packed lease it is sent in a pack with others, after some milliseconds at most. Raises `ContentTooLarge`,
        `FieldError` for properties that cannot be encoded, and the error that ended the writer.
        """
        name, table, octets = self._checked(body, properties, resource)
        with self._sending, self._pump.lock:
            self._check()
            return self._accept(name, table, octets)

    def send_pack(
        self, pack: pa.RecordBatch | Buffer, count: int | None = None, *, resource: str | None = None
    ) -> int:
        """Publish a batch of the columns `properties` and `body` as one unit; returns the number of its last content.

        `pack` may also be an encoded pack of `count` contents. It is confirmed or refused as a whole. Raises
        `ContentTooLarge` if it has to be split, `FieldError` for other columns, and the error that ended the writer.
        """
        if not self._packed:
            raise OptionError("the lease is not packed; open the writer with packed=True")
        if isinstance(pack, pa.RecordBatch):
            with self._encoding:
                count, encoded = pack.num_rows, self._pump.encode(pack)
        elif count is not None:
            encoded = pack if isinstance(pack, pa.Buffer) else pa.py_buffer(bytes(pack))
            if encoded.size > self._pump.max_pack:
                raise ContentTooLarge(encoded.size, self._pump.max_pack, "pack")
            decode_pack(encoded, count)
        else:
            raise OptionError("an encoded pack needs the argument `count`, the number of its contents")
        if not count:
            raise OptionError("a pack has at least one content")
        name = self._named(resource)
        with self._sending, self._pump.lock:
            self._check()
            self._pack_buffer()
            return self._publish(name, packed_properties(count), encoded, count, encoded.size) + count - 1

    def flush(self, timeout: float | None = None) -> None:
        """Wait until all contents are confirmed, for at most `timeout` seconds (default: as long as there is progress).

        Raises `Unreachable` if nothing is confirmed for the connection's `retry_deadline`, or after `timeout`.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._sending, self._pump.lock:
            self._check()
            self._pack_buffer(deadline)
        with self._pump.lock:
            self._wait(lambda: not self._pump.writer.unconfirmed, "waiting for Confirms", deadline)
            self._check()

    # --- for an event loop, which must not wait (mtl.client.aio) ----------------------------------------------

    def listen(self, listener: Callable[[], None]) -> None:
        """Call `listener`, in the IO thread, when there may be room, contents were settled, or the writer ended.

        It is called under the writer's lock, so it must not use the writer.
        """
        self._pump.listener = listener

    def offer(
        self, body: Buffer, properties: Mapping[str, Value] | None = None, *, resource: str | None = None
    ) -> int | None:
        """Like `send`, but returns None if that would block."""
        name, table, octets = self._checked(body, properties, resource)
        with self._sending, self._pump.lock:
            self._end_check()
            if self._would_wait(1, len(octets) + len(table)):
                return None
            return self._accept(name, table, octets)

    def offer_run(
        self, bodies: Sequence[bytes], tables: Sequence[bytes], *, resource: str | None = None
    ) -> int | None:
        """Publish contents as one unit, which is confirmed or refused as a whole. Returns the number of the last, or
        None if that would block. `tables` are their properties (`encode_properties`). Several are sent as a pack.

        Raises `ContentTooLarge` also for a run that has to be split, and the error that ended the writer.
        """
        if not self._packed:
            raise OptionError("the lease is not packed; open the writer with packed=True")
        name = self._named(resource)
        largest = max(map(len, bodies))
        if largest > self._pump.max_content:
            raise ContentTooLarge(largest, self._pump.max_content)
        count, octets = len(bodies), sum(map(len, bodies)) + sum(map(len, tables))
        with self._sending:
            with self._pump.lock:
                self._end_check()
                if self._would_wait(count, octets):
                    return None
            body: Buffer
            if count == 1:
                properties, body = tables[0], bodies[0]
            else:  # without the lock: meanwhile the IO thread may send and settle, which only makes room
                body = encode_pack(bodies, tables, self._pump.max_pack)
                properties, octets = packed_properties(count), len(body)
            with self._pump.lock:
                self._pack_buffer()
                return self._publish(name, properties, body, count, octets) + count - 1

    def push(self) -> int:
        """Send the pack that is being collected, and return the last publishing number."""
        with self._sending, self._pump.lock:
            self._end_check()
            self._pack_buffer()
            return self._pump.writer.next - 1

    @property
    def progress(self) -> int:
        """A number that grows whenever contents are settled."""
        with self._pump.lock:
            return self._pump.writer.progressed

    @property
    def error(self) -> MtlError | None:
        """The error that ended the writer, or None."""
        return self._pump.error

    def take_refused(self) -> list[RefusedContent]:
        """The contents that the broker rejected for good, each returned or raised only once."""
        with self._pump.lock:
            refused, self._pump.writer.refused = self._pump.writer.refused, []
        return refused

    def stalled(self, patience: Patience, doing: str) -> Unreachable:
        """The error for a wait without progress."""
        writer = self._pump.writer
        held = f"{doing}, {writer.unconfirmed} contents unconfirmed"
        waited = time.monotonic() - patience.began
        return Unreachable(self._settings.endpoint, waited, held, sent_back=writer.sent_back)

    def _would_wait(self, contents: int, size: int) -> bool:
        """Under the lock: whether there is no room for `contents` contents of `size` octets in total, together with the
        pack that is being collected.
        """
        writer, count = self._pump.writer, len(self._bodies) + contents
        held = pack_size(count, self._octets + size) if self._packed else size
        return not writer.room(count, held) or (writer.waiting >= MAX_UNSENT and self._pump.sending)

    # --- under the lock -------------------------------------------------------------------------------------

    def _checked(
        self, body: Buffer, properties: Mapping[str, Value] | None, resource: str | None
    ) -> tuple[str, bytes, bytes]:
        """Check a content: its resource, encoded properties and octets. Needs no lock."""
        table = encode_properties(properties) if properties else EMPTY
        octets = body if type(body) is bytes else bytes(body)
        if len(octets) > self._pump.max_content:
            raise ContentTooLarge(len(octets), self._pump.max_content)
        return self._named(resource), table, octets

    def _accept(self, name: str, table: bytes, octets: bytes) -> int:
        if self._packed:
            return self._buffer(name, table, octets)
        return self._publish(name, table, octets, 1, len(octets) + len(table))

    def _publish(self, name: str, table: bytes, body: Buffer, count: int, size: int) -> int:
        pump, writer = self._pump, self._pump.writer
        self._await_room(count, size)
        number = writer.publish(name, table, body, count).sequence
        if not pump.scheduled:
            pump.scheduled = True
            self._loop.post(pump.run)
        if writer.waiting > MAX_UNSENT and pump.sending:
            self._wait(lambda: not writer.waiting or not pump.sending, "sending")
        return number

    def _await_room(self, count: int, size: int, deadline: float | None = None) -> None:
        writer = self._pump.writer
        if not writer.room(count, size):
            self._wait(lambda: writer.room(count, size), "waiting for room in the window", deadline)
            self._check()

    def _wait(self, done: Callable[[], bool], doing: str, deadline: float | None = None) -> None:
        """Wait until `done`. `Unreachable` without progress for the retry deadline, or after `deadline`."""
        pump = self._pump
        patience = Patience(self._settings.retry_deadline, deadline)
        pump.waiters += 1
        try:
            while not done() and pump.error is None:
                left = patience.left(pump.writer.progressed)
                if left <= 0:
                    raise self.stalled(patience, doing)
                pump.condition.wait(left)
        finally:
            pump.waiters -= 1

    def _check(self) -> None:
        refused = self._pump.writer.refused
        if refused and self._pid == process():
            first = refused.pop(0)
            staged = self._pump.options.stage is not None
            raise ContentRefused(first.resource, first.last, _STAGE_REFUSED if staged else "")
        self._end_check()

    def _end_check(self) -> None:
        if self._pid != process():
            raise Closed("the writer belongs to another process; open one after the fork")
        pump = self._pump
        if pump.error is not None:
            raise pump.error
        if not self._open:
            raise Closed("the writer is closed")

    def _named(self, resource: str | None) -> str:
        if resource is not None:
            _check_name(resource)  # an invalid name has to be an error here, not later in the IO thread
        name = resource or self._only
        if name:
            return name
        raise OptionError("the lease has several resources; name one: send(..., resource=NAME)")

    # --- packing, under the lock ----------------------------------------------------------------------------

    def _buffer(self, name: str, table: bytes, body: bytes) -> int:
        size = len(body) + len(table)
        if pack_size(1, size) > self._pump.max_pack:
            raise ContentTooLarge(size, self._pump.max_pack - pack_size(1, 0), "content of a packed lease")
        if self._bodies and (
            name != self._target
            or self._octets + size > min(PACK_TARGET, self._pump.max_pack)
            or len(self._bodies) >= min(PACK_TARGET_CONTENTS, MAX_PACK_CONTENTS)
        ):
            self._pack_buffer()
        if not self._bodies:
            self._loop.post(self._linger)
        self._target = name
        self._bodies.append(body)
        self._tables.append(table)
        self._octets += size
        return self._pump.writer.next + len(self._bodies) - 1

    def _pack_buffer(self, deadline: float | None = None) -> None:
        """Publish the collected contents as one pack. After an error (no room in time, an earlier content refused) they
        stay collected, since their numbers are in use.
        """
        if not self._bodies:
            return
        count = len(self._bodies)
        pack = encode_pack(self._bodies, self._tables, self._pump.max_pack)
        self._await_room(count, len(pack), deadline)
        self._bodies, self._tables, self._octets = [], [], 0
        self._publish(self._target, packed_properties(count), pack, count, len(pack))

    def _linger(self) -> None:
        """In the IO thread: send the collected contents after LINGER_S, even if the pack is not full."""
        self._loop.after(LINGER_S, self._lingered)

    def _lingered(self) -> None:
        """In the IO thread, which must not block: try again later while another thread sends, or without room."""
        pump = self._pump
        if not self._sending.acquire(blocking=False):
            self._linger()
            return
        try:
            with pump.lock:
                if not self._bodies or pump.error is not None:
                    return
                size = pack_size(len(self._bodies), self._octets)
                if pump.writer.waiting < MAX_UNSENT and pump.writer.room(len(self._bodies), size):
                    self._pack_buffer()
                else:
                    self._linger()
        finally:
            self._sending.release()

    # --- the end --------------------------------------------------------------------------------------------

    def seal(self) -> w.Sealed:
        """Flush, close, and seal the stage. Returns its public id, the content count of each resource, and its octets
        on disk.
        """
        if self._pump.options.stage is None:
            raise LocalError("the writer has no stage to seal")
        self.flush()
        try:
            reply = self._end(self._pump.close, None)
        except Refused as error:
            if error.reason != w.UNKNOWN_LEASE:
                raise
            return self._described()
        if not isinstance(reply, w.LeaseClosed) or reply.stage is None:
            raise LocalError("the broker closed the lease without sealing a stage")
        return reply.stage

    def _described(self) -> w.Sealed:
        """The description of a stage whose lease was lost by a restart; all its contents are confirmed."""
        stage = self._pump.options.stage
        assert stage is not None
        reply = self._ask(w.StageDescribe(application=stage.application))
        for one in reply.stages if isinstance(reply, w.Stages) else ():
            if one.stage == self.stage:
                return w.Sealed(stage=one.stage, contents=one.contents, bytes=one.bytes)
        raise Refused(404, w.UNKNOWN_STAGE, f"stage {self.stage} is gone", stage=self.stage)

    def close(self) -> None:
        """Flush and end the lease, which seals a stage. May be called again.

        If contents are not confirmed, raises the error that ended the writer: they may be lost.
        """
        if not self._open or self._pid != process():
            self._open = False
            return
        try:
            if self._pump.error is None or self.unconfirmed:
                self.flush()
        except MtlError:
            self.abandon()
            raise
        self._over(self._pump.close)

    def abandon(self) -> None:
        """End without a wait: unconfirmed contents may be lost, and a stage is discarded."""
        if self._open and self._pid == process():
            self._over(self._pump.abandon)

    def _over(self, how: _Ending) -> None:
        try:
            self._end(how, self._settings.request_timeout)
        except MtlError:
            pass  # the writer has ended either way; the lease expires

    def _end(self, how: _Ending, within: float | None) -> w.Reply:
        self._open = False
        waiter = Waiter()
        try:
            self._loop.post(lambda: how(waiter.done, within=within))
            return waiter.wait(3 * self._settings.request_timeout + self._settings.retry_deadline)
        finally:
            self._closed()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Flush and close; abandon after an error of the block."""
        if kind is None:
            self.close()
        else:
            self.abandon()
