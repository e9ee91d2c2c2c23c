"""The client's sockets as ZeroMQ gives them: `mtl.net.endpoint` for real."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import zmq

from mtl.net.dealer import dealer
from mtl.net.endpoint import Curve, Link, Poll, Ready, Watcher
from mtl.net.link import SocketLink
from mtl.net.req import req
from mtl.net.wakeup import Wakeup


class ZmqNetwork:
    """Links over tcp, ipc and inproc."""

    def request(self, endpoint: str, curve: Curve | None = None) -> Link:
        """A REQ."""
        return req(endpoint, curve)

    def data(self, endpoint: str, *, packed: bool, curve: Curve | None = None) -> Link:
        """A DEALER."""
        return dealer(endpoint, packed=packed, curve=curve)

    def poll(self) -> Poll:
        """A poll over zmq_poll."""
        return ZmqPoll()


class ZmqPoll:
    """zmq_poll over the sockets, their monitors and the wake-up."""

    def __init__(self) -> None:
        self._poller = zmq.Poller()
        self._wakeup = Wakeup()
        self._poller.register(self._wakeup.fileno(), zmq.POLLIN)
        self._by_socket: dict[object, tuple[Watcher, SocketLink, bool]] = {}

    def add(self, link: Link, watcher: Watcher) -> None:
        """Watch a link and its monitor."""
        one = cast(SocketLink, link)
        self._poller.register(one.socket, zmq.POLLIN)
        self._poller.register(one.monitor, zmq.POLLIN)
        self._by_socket[one.socket] = (watcher, one, False)
        self._by_socket[one.monitor] = (watcher, one, True)

    def remove(self, link: Link) -> None:
        """Watch it no longer."""
        one = cast(SocketLink, link)
        for socket in (one.socket, one.monitor):
            if self._by_socket.pop(socket, None) is not None:
                self._poller.unregister(socket)

    def want_writable(self, link: Link, wanted: bool) -> None:
        """POLLOUT, or not. On a DEALER it means room, unlike on a ROUTER."""
        self._poller.modify(cast(SocketLink, link).socket, zmq.POLLIN | (zmq.POLLOUT if wanted else 0))

    def wait(self, timeout: float | None) -> Iterable[tuple[Watcher, Link, Ready]]:
        """Messages before the news of an end, so that nothing is missed that came before it."""
        happened: list[tuple[Watcher, Link, Ready]] = []
        ends: list[tuple[Watcher, Link, Ready]] = []
        for socket, events in self._poller.poll(
            None if timeout is None else max(0, int(timeout * 1000 + 0.999))
        ):
            found = self._by_socket.get(socket)
            if found is None:
                self._wakeup.clear()
                continue
            watcher, link, monitor = found
            if monitor:
                ends.append((watcher, link, link.signals()))
            else:
                readable = Ready.READABLE if events & zmq.POLLIN else Ready(0)
                happened.append(
                    (watcher, link, readable | (Ready.WRITABLE if events & zmq.POLLOUT else Ready(0)))
                )
        return happened + ends

    def wake(self) -> None:
        """Make the wake-up readable."""
        self._wakeup.wake()

    def close(self) -> None:
        """Close the wake-up; the links belong to their watchers."""
        self._wakeup.close()
