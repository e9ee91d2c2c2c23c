"""The application's part of a writer that does not wait: the common base of both clients' writers.

It checks contents and gives them to `mtl.client.writer_part`. Waiting for room in the window and for Confirms is in
`mtl.client.writer` and `mtl.client.aio.writer`.
"""

from __future__ import annotations

import atexit
import time
import warnings
from abc import abstractmethod
from collections.abc import Callable, Mapping
from functools import lru_cache

from mtl.client.io import process
from mtl.client.lease_handle import LeaseHandle
from mtl.client.limits import MAX_UNSENT, PACK_TARGET, PACK_TARGET_CONTENTS
from mtl.client.loop import Loop
from mtl.client.settings import Settings
from mtl.client.writer_part import WriterPart
from mtl.errors import Closed, ContentTooLarge, LocalError, MtlError, OptionError, Unreachable
from mtl.wire import control
from mtl.wire.fields import EMPTY, Buffer, Value, encode_properties, encode_short
from mtl.wire.packs import pack_size

_check_name = lru_cache(maxsize=1024)(encode_short)
"""Cached, because a writer of several resources checks a name for every content."""


_PACKED = pack_size(1, 0) - pack_size(0, 0)
"""Octets of a pack for one more content, without its body and properties."""


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


class WritingLease(LeaseHandle):
    """See the module."""

    kind = "writer"

    _part: WriterPart

    def __init__(self, loop: Loop, settings: Settings, part: WriterPart, closed: Callable[[], None]) -> None:
        super().__init__(loop, settings, part, closed)
        self._only = part.options.resources[0] if len(part.options.resources) == 1 else None
        self._packed = part.options.packed
        self._woken_last = self._woken_octets = 0
        """Number and octets of the last content for which the loop was woken."""

    # --- what was granted -----------------------------------------------------------------------------------

    @property
    def name(self) -> str | None:
        """The name under which the broker remembers the numbers; None for a staged or unnamed writer."""
        return self._part.options.name

    @property
    def last(self) -> dict[str, int]:
        """Per resource, the last number of this name that the broker had when the lease was granted."""
        lease = self._part.lease
        return dict(lease.last or {}) if lease is not None else {}

    @property
    def stage(self) -> str | None:
        """The public id of the stage."""
        return self._part.lease.stage if self._part.lease is not None else None

    @property
    def max_content(self) -> int:
        """Octets of the largest content that the broker accepts."""
        return self._part.max_content

    @property
    def max_pack(self) -> int:
        """Octets of the largest pack."""
        return self._part.max_pack

    @property
    def confirmed(self) -> int:
        """The highest number up to which all contents are settled."""
        return self._part.confirmed

    @property
    def unconfirmed(self) -> int:
        """The number of contents that are not settled."""
        return self._part.handover.end.last - self._part.settled

    @property
    def error(self) -> MtlError | None:
        """The error that ended the writer, or None."""
        return self._part.error

    # --- publishing, one thread at a time --------------------------------------------------------------------

    def _checked(
        self, body: Buffer, properties: Mapping[str, Value] | None, resource: str | None
    ) -> tuple[str, bytes, bytes]:
        """Check a content: its resource, encoded properties and octets."""
        table = encode_properties(properties) if properties else EMPTY
        octets = body if type(body) is bytes else bytes(memoryview(body))  # bytes(7) would be seven zeros
        if len(octets) > self._part.max_content:
            raise ContentTooLarge(len(octets), self._part.max_content)
        size = len(octets) + len(table)
        if self._packed and pack_size(1, size) > self._part.max_pack:
            raise ContentTooLarge(size, self._part.max_pack - pack_size(1, 0), "content of a packed lease")
        return self._named(resource), table, octets

    def _accept(self, name: str, table: bytes, octets: bytes) -> int:
        return self._publish(name, table, octets, 1, self._size(len(octets) + len(table)), whole=False)

    def _size(self, octets: int) -> int:
        """The part of the window of one content whose body and properties have `octets`."""
        return octets + _PACKED if self._packed else octets

    def _publish(
        self, name: str, table: bytes, body: Buffer, count: int, size: int, *, whole: bool = True
    ) -> int:
        """Publish contents as one when there is room. Returns the number of the last."""
        self._await_room(count, size)
        part = self._part
        try:
            number = part.handover.publish(name, table, body, count, size, whole=whole)
            if part.idle or self._has_pack():
                self._wake_pump()
        except BaseException:  # interrupted: it may be published
            self._wake_pump()
            raise
        if not self._packed and number - part.sent > MAX_UNSENT and part.sending:
            self._await_sent(number)
        return number

    def _has_room(self, count: int, size: int) -> bool:
        """Whether the window has room for `count` contents of `size` octets."""
        part, end = self._part, self._part.handover.end
        return part.writer.fits(end.last - part.settled, end.octets - part.settled_octets, count, size)

    def _has_pack(self) -> bool:
        """Whether there are contents of a pack for which the loop was not woken; it looks for fewer after a while."""
        end = self._part.handover.end
        return (
            end.octets - self._woken_octets >= PACK_TARGET
            or end.last - self._woken_last >= PACK_TARGET_CONTENTS
        )

    def _wake_pump(self) -> None:
        part, end = self._part, self._part.handover.end
        self._woken_last, self._woken_octets = end.last, end.octets
        try:
            part.idle = False
            self._loop.post(part.run)
        except BaseException:  # interrupted
            part.idle = True
            raise

    @abstractmethod
    def _await_room(self, count: int, size: int) -> None:
        """Wait until the window has room for `count` contents of `size` octets."""

    @abstractmethod
    def _await_sent(self, number: int) -> None:
        """Wait until the contents up to `number` are sent."""

    def _check(self) -> None:
        """Raise the error that ended the writer, which has more information than `Closed`. A single call, because
        it runs for every content.
        """
        if self._pid != process():
            raise Closed("the writer belongs to another process; open one after the fork")
        if self._part.error is not None:
            raise self._part.error
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
        writer = self._part.writer
        held = f"{doing}, {self.unconfirmed} contents unconfirmed"
        waited = time.monotonic() - patience.began
        return Unreachable(self._settings.endpoint, waited, held, sent_back=writer.sent_back)

    # --- the seal of a stage --------------------------------------------------------------------------------

    def _check_stage(self) -> None:
        if self._part.options.stage is None:
            raise LocalError("the writer has no stage to seal")

    @staticmethod
    def _sealed(reply: control.Reply) -> control.StageSealed:
        if not isinstance(reply, control.LeaseClosed) or reply.stage is None:
            raise LocalError("the broker closed the lease without sealing a stage")
        return reply.stage


def _warn_of_open_writers() -> None:
    """The process ends. Contents that are not confirmed are lost, so this warning is shown by default, other than the
    ResourceWarning of an open file.
    """
    for part in list(WriterPart.open):
        count = part.handover.end.last - part.settled
        names = ", ".join(part.options.resources)
        if count > 0:
            warnings.warn(
                f"the process ends with an open writer to {names}: {count} contents are not confirmed and may be lost; "
                "use the writer in a `with` block, or call its `flush` or `close`",
                RuntimeWarning,
                stacklevel=1,
            )
        else:
            warnings.warn(
                f"the process ends with an open writer to {names}; close it, or use it in a `with` block",
                ResourceWarning,
                stacklevel=1,
            )


atexit.register(
    _warn_of_open_writers
)  # runs before the IO thread is stopped, because `mtl.client.io` is older
