"""`mtl.net.endpoint` implemented with ZeroMQ sockets."""

from __future__ import annotations

import selectors
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import cast

import zmq

from mtl.limits import MAX_CONTROL_FRAME, MAX_FRAME, PLAIN_HWM
from mtl.net.endpoint import Curve, Link, LinkEvents, Poll, Watcher
from mtl.net.families import Families
from mtl.net.held import HeldFrames
from mtl.net.limits import PACKED_HWM
from mtl.net.link import SocketLink
from mtl.net.wakeup import Wakeup

# Plain numbers: combining zmq's enums costs a microsecond each time.
_IN = int(zmq.POLLIN)
_OUT = int(zmq.POLLOUT)

_REQUESTS = 4
"""Messages that a REQ queues; it has one at a time."""


_LONGEST_WAIT_S = 3_600.0
"""The longest wait for events; callers wait again. A month, for example, would be too large for epoll."""


def _bounded(timeout: float | None) -> float | None:
    return None if timeout is None else min(timeout, _LONGEST_WAIT_S)


class ZmqNetwork:
    """Links over tcp, ipc and inproc. With `own_thread` a thread of its own uses them, and hands the contents to
    others: large packs without a copy (`HeldFrames`).
    """

    def __init__(self, *, own_thread: bool = False) -> None:
        self._families = Families()
        self._held = HeldFrames() if own_thread else None

    def request(self, endpoint: str, curve: Curve | None = None) -> Link:
        """A REQ (MTL-13). One that waits for a reply cannot send again, so one without a reply is closed and replaced:
        the Lazy Pirate pattern of the ZeroMQ guide (PROTOCOL.md 2).
        """
        return SocketLink(
            zmq.REQ,
            endpoint,
            hwm=_REQUESTS,
            max_frame=MAX_CONTROL_FRAME,
            curve=curve,
            families=self._families,
        )

    def data(self, endpoint: str, *, packed: bool, curve: Curve | None = None) -> Link:
        """A DEALER (MTL-54). On `packed` flows the queues are short."""
        hwm = PACKED_HWM if packed else PLAIN_HWM
        return SocketLink(
            zmq.DEALER,
            endpoint,
            hwm=hwm,
            max_frame=MAX_FRAME,
            curve=curve,
            families=self._families,
            held=self._held if packed else None,
        )

    def poll(self) -> Poll:
        """A poll over the sockets' descriptors."""
        return ZmqPoll(self._held)


@dataclass(eq=False, slots=True)
class _Watched:
    """The socket of a link, or its monitor. `wanted` are the events of interest."""

    socket: zmq.Socket[bytes]
    watcher: Watcher
    link: SocketLink
    wanted: int = _IN


class ZmqPoll:
    """Polls the descriptors of the sockets, their monitors and the wake-up. A round costs time only for the sockets
    with events; zmq_poll asks all sockets in every round.

    A socket's descriptor is edge-triggered, and any use of the socket clears it (ZMQ_FD in zmq_getsockopt). So the
    EVENTS of each socket that was used or had events are read before the next sleep: `_used_sockets`.
    """

    def __init__(self, held: HeldFrames | None = None) -> None:
        self._held = held
        wakeup = Wakeup()
        self._wakeup: Wakeup | None = wakeup
        """Its descriptor is closed with the last reference to it, so that a `wake` in another thread at the same time
        does not write to another file of that number. A lock could stay held by a thread that is interrupted."""
        self._selector = selectors.DefaultSelector()
        self._selector.register(wakeup.fileno(), selectors.EVENT_READ)
        self._sockets: dict[SocketLink, tuple[_Watched, _Watched]] = {}
        self._used_sockets: dict[_Watched, None] = {}

    def add(self, link: Link, watcher: Watcher) -> None:
        """Watch a link and its monitor."""
        socket_link = cast(SocketLink, link)
        own, monitor = (
            _Watched(socket_link.socket, watcher, socket_link),
            _Watched(socket_link.monitor, watcher, socket_link),
        )
        self._sockets[socket_link] = own, monitor
        for watched in (own, monitor):
            self._selector.register(watched.socket, selectors.EVENT_READ, watched)
            self._used_sockets[watched] = None
        socket_link.used = lambda: self._used_sockets.setdefault(own)

    def remove(self, link: Link) -> None:
        """Watch it no longer."""
        socket_link = cast(SocketLink, link)
        socket_link.used = None
        for watched in self._sockets.pop(socket_link, ()):
            with suppress(KeyError):  # Ctrl-C has interrupted `add` or `remove` of an event loop
                self._selector.unregister(watched.socket)
            self._used_sockets.pop(watched, None)

    def watch_writable(self, link: Link, wanted: bool) -> None:
        """Whether to poll for POLLOUT. On a DEALER it means room in the queue, unlike on a ROUTER."""
        own, _ = self._sockets[cast(SocketLink, link)]
        own.wanted = _IN | _OUT if wanted else _IN
        self._used_sockets[own] = None

    @property
    def may_have_events(self) -> bool:
        """Whether sockets were used since `wait` read their EVENTS."""
        return bool(self._used_sockets)

    def fileno(self) -> int:
        """The selector's own descriptor: epoll's or kqueue's, which other selectors can watch."""
        return self._selector.fileno()

    def wait(self, timeout: float | None) -> Iterable[tuple[Watcher, Link, LinkEvents]]:
        """Messages come before the end of their connection, so that none is missed."""
        if self._held:
            self._held.free_unused()
        events = self._read_events(tuple(self._used_sockets))
        changed: list[_Watched] = []
        for key, _ in self._selector.select(0.0 if events else _bounded(timeout)):
            if key.data is None:
                if self._wakeup is not None:
                    self._wakeup.clear()
            elif key.data not in events:
                changed.append(key.data)
        events.update(self._read_events(changed))
        happened: list[tuple[Watcher, Link, LinkEvents]] = []
        ends: list[tuple[Watcher, Link, LinkEvents]] = []
        for watched, happening in events.items():
            if watched.socket is watched.link.monitor:
                ends.append((watched.watcher, watched.link, watched.link.signals()))
            else:
                readable = LinkEvents.READABLE if happening & _IN else LinkEvents(0)
                happened.append(
                    (
                        watched.watcher,
                        watched.link,
                        readable | (LinkEvents.WRITABLE if happening & _OUT else LinkEvents(0)),
                    )
                )
        return happened + ends

    def _read_events(self, sockets: Iterable[_Watched]) -> dict[_Watched, int]:
        """The wanted events of each socket that has some. For the others the descriptor reports the next change."""
        events: dict[_Watched, int] = {}
        for watched in sockets:
            happening = int(watched.socket.getsockopt(zmq.EVENTS)) & watched.wanted
            if happening:
                events[watched] = happening
                self._used_sockets[watched] = None
            else:
                self._used_sockets.pop(watched, None)
        return events

    def wake(self) -> None:
        """End a `wait`. No effect on a closed poll."""
        wakeup = self._wakeup
        if wakeup is not None:
            wakeup.wake()

    def close(self) -> None:
        """Close the wake-up and the selector; the links belong to their watchers."""
        self._selector.close()
        self._wakeup = None
