"""Writing: contents one by one, or packs of many. See `Connection.writer`."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Protocol, Self, cast

import pyarrow as pa

from mtl.client.control import Outcome, Waiter
from mtl.client.io import process
from mtl.client.loop import Loop
from mtl.client.pump import Pump
from mtl.client.settings import Settings
from mtl.client.writing import Patience, WritingLease
from mtl.errors import ContentRefused, ContentTooLarge, MtlError, OptionError
from mtl.wire import control as w
from mtl.wire.commands import packed_properties
from mtl.wire.fields import Buffer, Value
from mtl.wire.packs import decode_pack


class _Ending(Protocol):
    def __call__(self, then: Callable[[Outcome], None], *, within: float | None) -> None: ...


_STAGE_REFUSED = (
    "the broker cannot accept it, or a failing disk has stopped the stage (`mtl stages list` shows which); "
    "write to another stage"
)


class Writer(WritingLease):
    """A lease to write to one resource, or to several.

    `send` and `send_pack` return the publishing number once the content is in the window; `flush` waits until all
    contents are confirmed, that is durable, and so does `close` (and the end of a `with` block without an error).
    Contents lost by a connection or a restart of the broker are sent again, and the broker drops duplicates. `send`
    blocks while the window of unconfirmed contents is full. Thread-safe.

    Any method may raise `ContentRefused` for a content that the broker rejected for good, once for each; `Fenced` if
    another writer of the name took over; `Unreachable` if the broker does not answer for `retry_deadline`.
    """

    def __init__(self, loop: Loop, settings: Settings, pump: Pump, closed: Callable[[], None]) -> None:
        super().__init__(loop, settings, pump, closed)
        self._condition = threading.Condition(cast("threading.Lock", pump.lock))
        self._waiters = 0
        self._sending = threading.Lock()
        """Held during a send, so that sends run one after the other, even while one waits for room. Acquired before
        the pump's lock."""
        self._encoding = threading.Lock()
        """Held while a pack is encoded, so that packs are encoded one after the other, even while a send waits for
        room."""
        pump.listener = self._notify

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
            self._check_all()
            return self._accept(name, table, octets)

    def send_pack(
        self, pack: pa.RecordBatch | Buffer, count: int | None = None, *, resource: str | None = None
    ) -> int:
        """Publish a batch of the columns `properties` and `body` as one unit; returns the number of its last content.

        `pack` may also be an encoded pack of `count` contents. It is confirmed or refused as a whole. Raises
        `ContentTooLarge` if it has to be split, `FieldError` for other columns, and the error that ended the writer.
        """
        self._check_packed()
        if isinstance(pack, pa.RecordBatch):
            with self._encoding:
                count, encoded = pack.num_rows, self._pump.encode(pack)
        elif count is not None:
            encoded = pack if isinstance(pack, pa.Buffer) else pa.py_buffer(bytes(memoryview(pack)))
            if encoded.size > self._pump.max_pack:
                raise ContentTooLarge(encoded.size, self._pump.max_pack, "pack")
            decode_pack(encoded, count)
        else:
            raise OptionError("an encoded pack needs the argument `count`, the number of its contents")
        if not count:
            raise OptionError("a pack has at least one content")
        name = self._named(resource)
        with self._sending, self._pump.lock:
            self._check_all()
            self._pack_buffer()
            return self._publish(name, packed_properties(count), encoded, count, encoded.size) + count - 1

    def flush(self, timeout: float | None = None) -> None:
        """Wait until all contents are confirmed, for at most `timeout` seconds (default: as long as there is progress).

        Raises `Unreachable` if nothing is confirmed for the connection's `retry_deadline`, or after `timeout`.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._sending, self._pump.lock:
            self._check_all()
            self._pack_buffer(deadline)
        with self._pump.lock:
            self._wait(lambda: not self._pump.writer.unconfirmed, "waiting for Confirms", deadline)
            self._check_all()

    # --- waiting, under the lock ----------------------------------------------------------------------------

    def _await_room(self, count: int, size: int, deadline: float | None = None) -> None:
        writer = self._pump.writer
        if not writer.room(count, size):
            self._wait(lambda: writer.room(count, size), "waiting for room in the window", deadline)
            self._check_all()

    def _wait(self, done: Callable[[], bool], doing: str, deadline: float | None = None) -> None:
        """Wait until `done`. `Unreachable` without progress for the retry deadline, or after `deadline`."""
        pump = self._pump
        patience = Patience(self._settings.retry_deadline, deadline)
        self._waiters += 1
        try:
            while not done() and pump.error is None:
                left = patience.seconds_left(pump.writer.progressed)
                if left <= 0:
                    raise self._stalled(patience, doing)
                self._condition.wait(left)
        finally:
            self._waiters -= 1

    def _await_sent(self) -> None:
        pump = self._pump
        self._wait(lambda: not pump.writer.waiting or not pump.sending, "sending")

    def _notify(self) -> None:
        if self._waiters:
            self._condition.notify_all()

    def _check_all(self) -> None:
        """Raise the error for the next refused content, or the error of `_check`."""
        refused = self._pump.writer.refused
        if refused and self._pid == process():
            first = refused.pop(0)
            staged = self._pump.options.stage is not None
            raise ContentRefused(first.resource, first.last, _STAGE_REFUSED if staged else "")
        self._check()

    def _lingered(self) -> None:
        if not self._sending.acquire(blocking=False):
            self._linger()  # another thread sends
            return
        try:
            super()._lingered()
        finally:
            self._sending.release()

    # --- the end --------------------------------------------------------------------------------------------

    def seal(self) -> w.StageSealed:
        """Flush, close, and seal the stage. Returns its public id, the content count of each resource, and its octets
        on disk.
        """
        self._check_stage()
        self.flush()
        return self._sealed(self._end_lease(self._pump.seal, None))

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
        self._end_quietly(self._pump.close)

    def abandon(self) -> None:
        """End without a wait: unconfirmed contents may be lost, and a stage is discarded."""
        if self._open and self._pid == process():
            self._end_quietly(self._pump.abandon)

    def _end_quietly(self, operation: _Ending) -> None:
        try:
            self._end_lease(operation, self._settings.request_timeout)
        except MtlError:
            pass  # the writer has ended either way; the lease expires

    def _end_lease(self, operation: _Ending, within: float | None) -> w.Reply:
        self._open = False
        waiter = Waiter(self._loop)
        try:
            self._loop.post(lambda: operation(waiter.done, within=within))
            return waiter.wait()
        finally:
            self._closed()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Flush and close. After an error of the block abandon the writer instead."""
        if kind is None:
            self.close()
        else:
            self.abandon()
