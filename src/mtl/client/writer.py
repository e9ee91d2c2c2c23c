"""Writing: contents one by one, or packs of many. See `Connection.writer`."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Protocol, Self

import pyarrow as pa

from mtl.client.control import Outcome
from mtl.client.io import process
from mtl.client.limits import LEAVE_S
from mtl.client.loop import Loop
from mtl.client.notice import Notice
from mtl.client.settings import Settings
from mtl.client.turn import Turn
from mtl.client.waiter import Waiter
from mtl.client.writer_part import WriterPart
from mtl.client.writing import Patience, WritingLease
from mtl.errors import Closed, ContentRefused, ContentTooLarge, MtlError, OptionError
from mtl.wire import control
from mtl.wire.commands import packed_properties
from mtl.wire.fields import Buffer, Value
from mtl.wire.packs import ArrowBuffer, decode_pack, encode_batch


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

    def __init__(self, loop: Loop, settings: Settings, part: WriterPart, closed: Callable[[], None]) -> None:
        super().__init__(loop, settings, part, closed)
        self._notice = Notice()
        self._sending = Turn()
        """Sends run one after the other, even while one waits for room."""
        self._refusals = Turn()
        part.listener = self._notice.notify

    # --- sending --------------------------------------------------------------------------------------------

    def send(
        self, body: Buffer, properties: Mapping[str, Value] | None = None, *, resource: str | None = None
    ) -> int:
        """Publish one content and return its number. `resource` is required if the lease has several.

        On a packed lease it is sent in a pack with others, after some milliseconds at most. Raises `ContentTooLarge`,
        `FieldError` for properties that cannot be encoded, and the error that ended the writer.
        """
        name, table, octets = self._checked(body, properties, resource)
        return self._sending.run(self._send, name, table, octets)

    def _send(self, name: str, table: bytes, octets: bytes) -> int:
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
            count, encoded = pack.num_rows, encode_batch(pack, self._part.max_pack)
        elif count is not None:
            unchanging = isinstance(pack, pa.Buffer | bytes)  # the pack is kept until it is confirmed
            encoded = pa.py_buffer(pack if unchanging else bytes(memoryview(pack)))
            if encoded.size > self._part.max_pack:
                raise ContentTooLarge(encoded.size, self._part.max_pack, "pack")
            decode_pack(encoded, count)
        else:
            raise OptionError("an encoded pack needs the argument `count`, the number of its contents")
        if not count:
            raise OptionError("a pack has at least one content")
        return self._sending.run(self._send_pack, self._named(resource), count, encoded)

    def _send_pack(self, name: str, count: int, encoded: ArrowBuffer) -> int:
        self._check_all()
        return self._publish(name, packed_properties(count), encoded, count, encoded.size)

    def flush(self, timeout: float | None = None) -> None:
        """Wait until all contents are confirmed, for at most `timeout` seconds (default: as long as there is progress).

        Raises `Unreachable` if nothing is confirmed for the connection's `retry_deadline`, or after `timeout`.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        self._check_all()
        part, last = self._part, self._part.handover.end.last
        self._loop.post(part.push)
        self._wait(lambda: part.confirmed >= last, "waiting for Confirms", deadline)
        self._check_all()

    # --- waiting --------------------------------------------------------------------------------------------

    def _await_room(self, count: int, size: int) -> None:
        if not self._has_room(count, size):
            self._loop.post(self._part.push)
            self._wait(lambda: self._has_room(count, size), "waiting for room in the window")
            self._check_all()

    def _await_sent(self, number: int) -> None:
        part = self._part
        self._wait(lambda: part.sent >= number or not part.sending, "sending")

    def _wait(self, done: Callable[[], bool], doing: str, deadline: float | None = None) -> None:
        """Wait until `done`. `Unreachable` without progress for the retry deadline, or after `deadline`."""
        part = self._part
        patience = Patience(self._settings.retry_deadline, deadline)

        def is_over() -> bool:
            return done() or part.error is not None

        while not is_over():
            left = patience.seconds_left(part.writer.progressed)
            if left <= 0:
                raise self._stalled(patience, doing)
            self._notice.wait(is_over, left)

    def _check_all(self) -> None:
        """Raise the error for the next refused content, or the error of `_check`."""
        if self._part.rejected and self._pid == process():
            self._refusals.run(self._raise_refused)
        self._check()

    def _raise_refused(self) -> None:
        refused = self._part.rejected
        if not refused:
            return  # another thread has raised it
        first = refused[0]
        staged = self._part.options.stage is not None
        fault = self._part.faults.get(first.last)
        text = str(fault) if fault is not None else _STAGE_REFUSED if staged else ""
        error = ContentRefused(first.resource, first.last, text)
        try:
            raise error from fault
        finally:
            refused.popleft()  # last: an interrupted call does not lose it
            self._part.faults.pop(first.last, None)

    # --- the end --------------------------------------------------------------------------------------------

    def seal(self) -> control.StageSealed:
        """Flush, close, and seal the stage. Returns its public id, the content count of each resource, and its octets
        on disk.
        """
        self._check_stage()
        self.flush()
        reply = self._end_lease(self._part.seal, None)
        assert reply is not None, "without a limit there is one"
        return self._sealed(reply)

    def close(self) -> None:
        """Flush and end the lease, which seals a stage. May be called again.

        If contents are not confirmed, raises the error that ended the writer: they may be lost.
        """
        if not self._shuts():
            return
        try:
            if self._open and (self._part.error is None or self.unconfirmed):
                self.flush()
        except MtlError:
            self.abandon()
            raise
        self._end_quietly(self._part.close, self._settings.request_timeout)

    def abandon(self) -> None:
        """End without a wait: unconfirmed contents may be lost, and a stage is discarded."""
        self._abandon(self._settings.request_timeout)

    def leave(self, patience: float) -> None:
        """Abandon after an error, waiting `patience` seconds for the broker at most; the loop completes it."""
        self._abandon(patience)

    def _abandon(self, within: float) -> None:
        if self._shuts():
            self._end_quietly(self._part.abandon, within)

    def _shuts(self) -> bool:
        """Whether the lease has to be ended: not after it has ended, and not after a fork. A call that ends it may have
        been interrupted.
        """
        if self._pid != process():
            self._open = False
        return not self._ended and self._pid == process()

    def _end_quietly(self, operation: _Ending, within: float) -> None:
        try:
            self._end_lease(operation, within)
        except MtlError:
            pass  # the writer has ended either way; the lease expires

    def _end_lease(self, operation: _Ending, within: float | None) -> control.Reply | None:
        """End the lease, and wait for the reply; None if there is none `within` this time."""
        self._open = False
        waiter = Waiter(self._loop)

        def ended(outcome: Outcome) -> None:
            self._conclude()
            waiter.done(outcome)

        try:
            waiter.start(lambda: operation(ended, within=within))
        except Closed:
            self._conclude()
            raise
        return waiter.within(None if within is None else 2 * within)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Flush and close. After an error of the block abandon the writer instead."""
        if kind is None:
            self.close()
        else:
            self.leave(LEAVE_S)
