"""Waits, in any thread, for the outcome of an operation in the loop."""

from __future__ import annotations

from collections.abc import Callable

from mtl.client.control import Outcome
from mtl.client.loop import Loop
from mtl.client.notice import Notice
from mtl.errors import Closed, MtlError
from mtl.wire import control


class Waiter:
    """The outcome of one operation, whose callback is `done`. It is `Closed` if the loop ends before."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._notice = Notice()
        self._outcome: Outcome | None = None

    def start(self, operation: Callable[[], None]) -> None:
        """Run the operation in the loop. Raises `Closed` if the loop has ended."""
        self._loop.post(lambda: self._run(operation))

    def _run(self, operation: Callable[[], None]) -> None:
        if self._outcome is None:
            self._loop.members.add(self)
        operation()
        if not self._loop.running:  # it has ended before, and abandons nobody any more
            self.abandoned(Closed("the connection was closed"))

    def done(self, outcome: Outcome) -> None:
        """Set the outcome."""
        self._loop.members.discard(self)
        if self._outcome is None:
            self._outcome = outcome
        self._notice.notify()

    def abandoned(self, error: MtlError) -> None:
        """The loop ends."""
        self.done(error)

    def wait(self) -> control.Reply:
        """Wait for the reply, or raise the error. Every operation in the loop ends by its own deadline."""
        reply = self.within(None)
        assert reply is not None, "an operation has an outcome"
        return reply

    def within(self, seconds: float | None) -> control.Reply | None:
        """The reply if it comes within `seconds`; None if the call is still pending. Raises the call's error."""
        self._notice.wait(self._has_outcome, seconds)
        if isinstance(self._outcome, MtlError):
            raise self._outcome
        return self._outcome

    def is_waiting(self, seconds: float) -> bool:
        """Whether the call is still pending after `seconds`."""
        return not self._notice.wait(self._has_outcome, seconds)

    def _has_outcome(self) -> bool:
        return self._outcome is not None
