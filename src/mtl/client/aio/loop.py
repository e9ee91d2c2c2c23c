"""The loop of an asyncio client: the event loop runs its rounds. No threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from mtl.client.loop import Loop
from mtl.errors import ClientFailed
from mtl.net.endpoint import Network


class EventLoop(Loop):
    """A loop in the running event loop. A round is run when the poll's descriptor is readable, when a call was
    posted, and when a timer is due. A round never waits. Other tasks run between two rounds.
    """

    def __init__(self, network: Network | None = None, endpoint: str = "") -> None:
        super().__init__(network)
        self._endpoint = endpoint
        self._events = asyncio.get_running_loop()
        self._soon: asyncio.Handle | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._events.add_reader(self.poll.fileno(), self._round)

    def now(self, call: Callable[[], None]) -> None:
        """Run `call` before this returns."""
        call()
        self._wake()

    def _wake(self) -> None:
        if self._soon is None:
            self._soon = self._events.call_soon(self._round)

    def _round(self) -> None:
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None
        if not self.running:
            return
        try:
            self.step(0.0)
        except Exception as error:
            self.end(ClientFailed(self._endpoint, error))  # waiting tasks must not wait without end
            raise
        pause = self.pause()
        if pause == 0.0:
            self._wake()
        elif pause is not None:
            self._set_alarm(self._events.time() + pause)

    def _set_alarm(self, when: float) -> None:
        """Set the alarm of the next round. An earlier alarm is kept: its round sets the next one."""
        if self._alarm is None or self._alarm.when() > when:
            if self._alarm is not None:
                self._alarm.cancel()
            self._alarm = self._events.call_at(when, self._rung)

    def _rung(self) -> None:
        self._alarm = None
        self._round()

    def _close_poll(self) -> None:
        if not self._events.is_closed():
            self._events.remove_reader(self.poll.fileno())
        for handle in (self._soon, self._alarm):
            if handle is not None:
                handle.cancel()
        super()._close_poll()
