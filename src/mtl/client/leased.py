"""The common base of readers and consumers: a lease that is closed once, in the process that opened it."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import ClassVar, Protocol, Self

from mtl.client.control import Outcome, Waiter
from mtl.client.io import process
from mtl.client.loop import Loop
from mtl.client.settings import Settings
from mtl.errors import Closed, MtlError


class Side(Protocol):
    """The part in the loop."""

    def close(self, then: Callable[[Outcome], None], *, within: float) -> None:
        """End the lease, in `within` seconds at most; `then` gets the reply or the error."""


class Leased:
    """See the module. `closed` is called after the end."""

    kind: ClassVar[str]
    """The noun for the lease in errors."""

    def __init__(self, loop: Loop, settings: Settings, side: Side, closed: Callable[[], None]) -> None:
        self._loop = loop
        self._settings = settings
        self._side = side
        self._closed = closed
        self._pid = process()
        self._open = True

    def _check(self) -> None:
        if not self._open:
            raise Closed(f"the {self.kind} is closed")
        if self._pid != process():
            raise Closed(f"the {self.kind} belongs to another process; open one after the fork")

    def _shut(self) -> bool:
        """Refuse further calls. Returns whether the lease has to be ended: not the second time, and not after a
        fork.
        """
        was_open, self._open = self._open, False
        return was_open and self._pid == process()

    def _end(self, done: Callable[[Outcome], None]) -> None:
        """End the lease, in the loop."""
        self._loop.post(lambda: self._side.close(done, within=self._settings.request_timeout))


class BlockingLease(Leased):
    """A lease whose `close` waits; a context manager."""

    def close(self) -> None:
        """End the lease. May be called again."""
        if not self._shut():
            return
        waiter = Waiter(self._loop)
        try:
            self._end(waiter.done)
            # Bounded: an interrupted application (Ctrl-C) has to end, and the lease expires by itself.
            waiter.within(3 * self._settings.request_timeout)
        except MtlError:
            pass  # the lease was closed already, or expires
        self._closed()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
