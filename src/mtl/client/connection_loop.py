"""The part of a loop that belongs to one connection. An exception in one of its callbacks ends this connection only.

All blocking connections of a process share one IO thread. Without this part, a defect that one of them meets would end
the thread, and with it all others.
"""

from __future__ import annotations

import logging
from _thread import start_new_thread
from collections.abc import Callable, Iterable
from functools import partial

from mtl.client.loop import Loop, Timer
from mtl.errors import ClientFailed, Closed, MtlError
from mtl.net.endpoint import Link, LinkEvents, Poll, Watcher

log = logging.getLogger("mtl.client")


class ConnectionLoop(Loop):
    """The links, timers, posted calls and members of one connection, in the rounds of the loop `whole`."""

    def __init__(self, whole: Loop, endpoint: str) -> None:
        # Not Loop's own constructor: the whole loop has the poll, the timers and the posted calls.
        self.network = whole.network
        self.poll = _ConnectionPoll(whole.poll, self)
        self.clock = whole.clock
        self.new_id = whole.new_id
        self.members = set()
        self.running = True
        self.failure = None
        self._whole = whole
        self._endpoint = endpoint
        whole.members.add(self)

    def post(self, call: Callable[[], None]) -> None:
        """See `Loop`. Raises `ClientFailed` if an exception has ended the connection."""
        if self.failure is not None:
            raise self.failure
        self._whole.post(partial(self.guard, call))

    def after(self, delay: float, call: Callable[[], None]) -> Timer:
        """See `Loop`."""
        return self._whole.after(delay, partial(self.guard, call))

    def guard(self, call: Callable[[], None]) -> None:
        """Run a callback. An exception ends the connection."""
        try:
            call()
        except Exception as error:  # noqa: BLE001 a defect, or a message that no check foresees
            self._fail(error)

    def abandoned(self, error: MtlError) -> None:
        """The whole loop ends."""
        self._leave(error)

    def end(self, failure: ClientFailed | None = None) -> None:
        """Fail all waits of the connection."""
        self.failure = failure
        self._leave(failure or Closed("the connection was closed"))

    def _leave(self, error: MtlError) -> None:
        self.running = False
        self._whole.members.discard(self)
        for member in list(self.members):
            try:
                member.abandoned(error)
            except Exception as wrong:  # noqa: BLE001 as in `guard`
                self._log("a part of the connection to %s cannot end", wrong)

    def _fail(self, error: Exception) -> None:
        self._log("an exception has ended the connection to %s", error)
        if self.running:
            self.end(ClientFailed(self._endpoint, error))

    def _log(self, text: str, error: Exception) -> None:
        """Log in another thread: this one must not take the locks of `logging` (`mtl.client.notice`)."""
        start_new_thread(partial(log.error, text, self._endpoint, exc_info=error), ())


class _ConnectionPoll:
    """The poll of the whole loop, with guarded watchers."""

    def __init__(self, poll: Poll, loop: ConnectionLoop) -> None:
        self._poll = poll
        self._loop = loop

    def add(self, link: Link, watcher: Watcher) -> None:
        self._poll.add(link, _Guarded(self._loop, watcher))

    def remove(self, link: Link) -> None:
        self._poll.remove(link)

    def watch_writable(self, link: Link, wanted: bool) -> None:
        self._poll.watch_writable(link, wanted)

    @property
    def may_have_events(self) -> bool:
        return self._poll.may_have_events

    def fileno(self) -> int:
        return self._poll.fileno()

    def wait(self, timeout: float | None) -> Iterable[tuple[Watcher, Link, LinkEvents]]:
        return self._poll.wait(timeout)

    def wake(self) -> None:
        self._poll.wake()

    def close(self) -> None:
        """No effect: the poll belongs to the whole loop."""


class _Guarded:
    """A watcher whose exceptions end the connection."""

    __slots__ = ("_loop", "_watcher")

    def __init__(self, loop: ConnectionLoop, watcher: Watcher) -> None:
        self._loop = loop
        self._watcher = watcher

    def ready(self, link: Link, events: LinkEvents) -> None:
        self._loop.guard(partial(self._watcher.ready, link, events))
