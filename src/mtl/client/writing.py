"""The application's part of a writer that does not wait: the common base of both clients' writers.

It checks contents, packs them, and gives them to `mtl.client.pump`. Waiting for room in the window and for Confirms
is in `mtl.client.writer` and `mtl.client.aio.writer`.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Mapping
from functools import lru_cache

from mtl.client.io import process
from mtl.client.leased import Leased
from mtl.client.limits import LINGER_S, MAX_UNSENT, PACK_TARGET, PACK_TARGET_CONTENTS
from mtl.client.loop import Loop
from mtl.client.pump import Pump
from mtl.client.settings import Settings
from mtl.errors import Closed, ContentTooLarge, LocalError, MtlError, OptionError, Unreachable
from mtl.limits import MAX_PACK_CONTENTS
from mtl.wire import control as w
from mtl.wire.commands import packed_properties
from mtl.wire.fields import EMPTY, Buffer, Value, encode_properties, encode_short
from mtl.wire.packs import encode_pack, pack_size

_check_name = lru_cache(maxsize=1024)(encode_short)
"""Cached, because a writer of several resources checks a name for every content."""


class Patience:
    """A time limit of `limit` seconds without progress, and optionally a `deadline` (monotonic) even with progress."""

    __slots__ = ("_deadline", "_limit", "_progress", "_since", "began")

    def __init__(self, limit: float, deadline: float | None = None) -> None:
        self.began = self._since = time.monotonic()
        self._limit = limit
        self._deadline = deadline
        self._progress: int | None = None

    def seconds_left(self, progress: int) -> float:
        """Seconds until the limit or the deadline; `progress` grows whenever contents are settled."""
        now = time.monotonic()
        if progress != self._progress:
            self._progress, self._since = progress, now
        until = self._since + self._limit
        return (until if self._deadline is None else min(until, self._deadline)) - now


class WritingLease(Leased):
    """See the module. The lock is that of the pump."""

    kind = "writer"

    def __init__(self, loop: Loop, settings: Settings, pump: Pump, closed: Callable[[], None]) -> None:
        super().__init__(loop, settings, pump, closed)
        self._pump = pump
        self._only = pump.options.resources[0] if len(pump.options.resources) == 1 else None
        self._packed = pump.options.packed
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

    @property
    def error(self) -> MtlError | None:
        """The error that ended the writer, or None."""
        return self._pump.error

    # --- under the lock -------------------------------------------------------------------------------------

    def _checked(
        self, body: Buffer, properties: Mapping[str, Value] | None, resource: str | None
    ) -> tuple[str, bytes, bytes]:
        """Check a content: its resource, encoded properties and octets. Needs no lock."""
        table = encode_properties(properties) if properties else EMPTY
        octets = body if type(body) is bytes else bytes(memoryview(body))  # bytes(7) would be seven zeros
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
            self._await_sent()
        return number

    @abstractmethod
    def _await_room(self, count: int, size: int, deadline: float | None = None) -> None:
        """Wait until the window has room for `count` contents of `size` octets."""

    @abstractmethod
    def _await_sent(self) -> None:
        """Wait until the published contents are sent."""

    def _check(self) -> None:
        """Raise the error that ended the writer, which has more information than `Closed`. A single call, because
        it runs for every content.
        """
        if self._pid != process():
            raise Closed("the writer belongs to another process; open one after the fork")
        if self._pump.error is not None:
            raise self._pump.error
        if not self._open:
            raise Closed("the writer is closed")

    def _check_packed(self) -> None:
        if not self._packed:
            raise OptionError("the lease is not packed; open the writer with packed=True")

    def _named(self, resource: str | None) -> str:
        if resource is not None:
            _check_name(resource)  # an invalid name has to be an error here, not later in the loop
        name = resource or self._only
        if name:
            return name
        raise OptionError("the lease has several resources; name one: send(..., resource=NAME)")

    def _stalled(self, patience: Patience, doing: str) -> Unreachable:
        """The error for a wait without progress."""
        writer = self._pump.writer
        held = f"{doing}, {writer.unconfirmed} contents unconfirmed"
        waited = time.monotonic() - patience.began
        return Unreachable(self._settings.endpoint, waited, held, sent_back=writer.sent_back)

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
        """Publish the collected contents as one pack. After an error (no room in time, an earlier content refused)
        they stay collected, because their numbers are in use.
        """
        if not self._bodies:
            return
        count = len(self._bodies)
        pack = encode_pack(self._bodies, self._tables, self._pump.max_pack)
        self._await_room(count, len(pack), deadline)
        self._bodies, self._tables, self._octets = [], [], 0
        self._publish(self._target, packed_properties(count), pack, count, len(pack))

    def _linger(self) -> None:
        """In the loop: send the collected contents after LINGER_S, even if the pack is not full."""
        self._loop.after(LINGER_S, self._lingered)

    def _lingered(self) -> None:
        """In the loop, which must not block: without room, try again later."""
        pump = self._pump
        with pump.lock:
            if not self._bodies or pump.error is not None:
                return
            size = pack_size(len(self._bodies), self._octets)
            if pump.writer.waiting < MAX_UNSENT and pump.writer.room(len(self._bodies), size):
                self._pack_buffer()
            else:
                self._linger()

    # --- the seal of a stage --------------------------------------------------------------------------------

    def _check_stage(self) -> None:
        if self._pump.options.stage is None:
            raise LocalError("the writer has no stage to seal")

    @staticmethod
    def _sealed(reply: w.Reply) -> w.StageSealed:
        if not isinstance(reply, w.LeaseClosed) or reply.stage is None:
            raise LocalError("the broker closed the lease without sealing a stage")
        return reply.stage
