"""The common base of readers and consumers: a lease that is closed once, in the process that opened it."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import ClassVar, Protocol, Self

from mtl.client.control import Done, Outcome
from mtl.client.io import process
from mtl.client.limits import LEAVE_S
from mtl.client.loop import Loop
from mtl.client.settings import Settings
from mtl.client.waiter import Waiter
from mtl.errors import Closed, MtlError


class LoopPart(Protocol):
    """The part in the loop."""

    def close(self, then: Done, *, within: float) -> None:
        """End the lease, in `within` seconds at most; `then` gets the reply or the error. May be called again."""


class LeaseHandle:
    """See the module. `closed` is called in the loop after the end."""

    kind: ClassVar[str]
    """The noun for the lease in errors."""

    def __init__(self, loop: Loop, settings: Settings, part: LoopPart, closed: Callable[[], None]) -> None:
        self._loop = loop
        self._settings = settings
        self._part = part
        self._closed = closed
        self._pid = process()
        self._open = True
        self._ended = False

    def _check(self) -> None:
        if not self._open:
            raise Closed(f"the {self.kind} is closed")
        if self._pid != process():
            raise Closed(f"the {self.kind} belongs to another process; open one after the fork")

    def _shut(self) -> bool:
        """Refuse further calls. Returns whether the lease has to be ended: not after it has ended, and not after a
        fork. A call that ends it may have been interrupted.
        """
        self._open = False
        return not self._ended and self._pid == process()

    def _end(self, done: Done, within: float) -> None:
        """End the lease. In the loop."""

        def ended(outcome: Outcome) -> None:
            self._conclude()
            done(outcome)

        self._part.close(ended, within=within)

    def _conclude(self) -> None:
        """The lease has ended."""
        self._ended = True
        self._closed()


class BlockingLease(LeaseHandle):
    """A lease whose `close` waits; a context manager."""

    def close(self) -> None:
        """End the lease. May be called again, also after it was interrupted."""
        # Bounded: an interrupted application (Ctrl-C) has to end, and the lease expires by itself. The loop's part may
        # use the time twice, for the Pong behind the last Confirm and for the answer; the third is for a busy loop.
        self._close(self._settings.request_timeout, 3 * self._settings.request_timeout)

    def leave(self, patience: float) -> None:
        """Close after an error, waiting `patience` seconds at most; the loop completes it."""
        self._close(patience, patience)

    def _close(self, within: float, patience: float) -> None:
        if not self._shut():
            return
        waiter = Waiter(self._loop)
        try:
            waiter.start(lambda: self._end(waiter.done, within))
            waiter.within(patience)
        except MtlError:  # the lease was closed already, or expires
            if not self._loop.running:
                self._conclude()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close; after an error of the block, without a long wait."""
        if kind is None:
            self.close()
        else:
            self.leave(LEAVE_S)
