"""The broker's sockets and the poller around them.

Control, packed data and plain data have a socket each, because a high-water mark is per socket and counts messages, not
octets. A broker can be configured to use one socket for all (MTL-56). POLLOUT is never polled: on a ROUTER it is true
even if the queues of all peers are full.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import NamedTuple

import zmq

from mtl import limits
from mtl.net import limits as net_limits
from mtl.net.open_connections import CONNECTIONS_OPEN, OpenConnections
from mtl.net.origin import Connection, Origin
from mtl.net.outgoing import Account, Outgoing
from mtl.net.pace import Pace
from mtl.net.ports import Port
from mtl.net.router import Burst, RouterSocket, SendOutcome
from mtl.net.zap import TellRefused, ZapHandler
from mtl.wire.fields import Buffer


@dataclass(frozen=True, slots=True)
class BrokerCurve:
    """The broker's secret CURVE key in Z85, and a function that decides whether a client's public key may connect."""

    secret: bytes = field(repr=False)
    admits: Callable[[str], bool]


class Unsent(NamedTuple):
    """The bounds of unsent octets: of contents, and of replies and commands."""

    contents: Outgoing
    answers: Outgoing


class BrokerSockets:
    """The broker's sockets, bound and polled together; `wakeup` is a descriptor that ends a poll early.

    `shared`: there is only the control socket. Its queues are as short as those for packs, since any message may be a
    pack. With `curve` all sockets are encrypted. `pace` limits how fast one address may connect, `most_open` how many
    connections it may have at the same time, `most_in_all` those of all addresses (default: any number). `refused` is
    called for each refused connection (`ZapHandler`).
    `unsent` bounds the octets that wait to be sent, over all sockets.
    """

    def __init__(
        self,
        endpoint: str,
        packed_port: int,
        plain_port: int,
        wakeup: int,
        *,
        shared: bool = False,
        curve: BrokerCurve | None = None,
        pace: Pace | None = None,
        most_open: int = CONNECTIONS_OPEN,
        most_in_all: int | None = None,
        refused: TellRefused = lambda _address, _key, _reason: None,
        unsent: Unsent,
    ) -> None:
        self._unsent = unsent
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.shared = shared
        self._opened = OpenConnections(most_open, in_all=most_in_all)
        self._secret = curve.secret if curve is not None else None
        with ExitStack() as opened:  # closed again should one of them not be bound
            opened.callback(self._context.term)
            admits = curve.admits if curve is not None else None
            pace = pace or Pace(time.monotonic)
            self._zap = ZapHandler(self._context, admits, pace, refused, self._opened)
            opened.callback(self._zap.close)
            self._bind_all(opened, endpoint, packed_port, plain_port)
            opened.pop_all()
        self._wakeup = wakeup
        self.woken = False
        """Whether the last poll found `wakeup` readable."""
        self._monitors = {r.monitor: r for r in self._by_port.values() if r.monitor is not None}
        self.ended: list[Connection] = []
        """The connections that the last poll found ended."""
        self._poller = zmq.Poller()
        routers = [r.socket for r in self._by_port.values()]
        for source in (*routers, wakeup, self._zap.socket, *self._monitors):
            self._poller.register(source, zmq.POLLIN)

    def _bind_all(self, opened: ExitStack, endpoint: str, packed_port: int, plain_port: int) -> None:
        if self.shared:
            self.control = self._bind(opened, endpoint, net_limits.PACKED_HWM, limits.MAX_FRAME)
            self.packed = self.plain = self.control
            self._by_port = {Port.CONTROL: self.control}
            return
        self.control = self._bind(
            opened,
            endpoint,
            net_limits.CONTROL_HWM,
            limits.MAX_CONTROL_FRAME * 2,
            net_limits.QUEUED_OCTETS,
            net_limits.CONTROL_WAITING,
        )
        packed = _data_endpoint(endpoint, packed_port, "packed")
        plain = _data_endpoint(endpoint, plain_port, "plain")
        self.packed = self._bind(opened, packed, net_limits.PACKED_HWM, limits.MAX_FRAME)
        self.plain = self._bind(
            opened,
            plain,
            limits.PLAIN_HWM,
            limits.MAX_FRAME,
            net_limits.QUEUED_OCTETS,
            net_limits.PLAIN_WAITING,
        )
        self._by_port = {Port.CONTROL: self.control, Port.PACKED: self.packed, Port.PLAIN: self.plain}

    def _bind(
        self,
        opened: ExitStack,
        endpoint: str,
        hwm: int,
        max_frame: int,
        max_queued: int | None = None,
        max_waiting: int | None = None,
    ) -> RouterSocket:
        router = RouterSocket(
            self._context,
            endpoint,
            hwm=hwm,
            max_frame=max_frame,
            max_queued=max_queued,
            max_waiting=max_waiting,
            secret=self._secret,
            zap=True,
            opened=self._opened,
        )
        opened.callback(router.close)
        return router

    def poll(self, patience_ms: int) -> set[Port]:
        """The sockets with messages to read, after waiting at most `patience_ms`."""
        readable = {source for source, _ in self._poller.poll(patience_ms)}
        self.woken = self._wakeup in readable
        judging = self._zap.socket in readable
        self.ended = [
            connection
            for monitor, router in self._monitors.items()
            if judging or monitor in readable
            for connection in router.ended()
        ]
        if judging:
            self._zap.answer()
        return {port for port, router in self._by_port.items() if router.socket in readable}

    def quiet(self) -> bool:
        """Whether no socket is readable now, nor the wake-up descriptor."""
        return not self._poller.poll(0)

    def requests(self) -> Iterator[tuple[list[bytes], Origin]]:
        """Messages of the control socket, with all frames, and their origins. On a shared socket they include data
        commands (`is_command`).
        """
        for _ in range(net_limits.DRAIN_MESSAGES):
            received = self.control.receive()
            if received is None:
                return
            yield received

    def commands(self, port: Port, *, alone: bool = False) -> Iterator[dict[bytes, Burst]]:
        """The waiting data commands in batches, by the identity of their peer. On the packed port a batch is one
        command (a pack takes long to handle), and large bodies are views. `alone`: read only one command, because
        probably no other one waits and finding that out costs an exception; if others wait, the next poll finds them.
        """
        left, packed = net_limits.DRAIN_MESSAGES, port is Port.PACKED
        while left > 0 and (
            bursts := self._by_port[port].receive_commands(1 if packed or alone else left, view=packed)
        ):
            received = sum(len(burst.headers) for burst in bursts.values())
            left -= received
            yield bursts
            if received == 1 and not packed:
                return  # it came alone; if others follow, the next poll finds them

    def discard(self) -> None:
        """Read all waiting messages and drop them. A queue that stays full makes libzmq abort the process when its peer
        disconnects: its heartbeat uses the ended connection (libzmq 4.3.5, stream_engine_base.cpp: !_io_error).
        """
        for _ in self.requests():
            pass
        for port in self._by_port:
            if port is not Port.CONTROL:
                for _ in self.commands(port):
                    pass

    @property
    def endpoints(self) -> list[str]:
        """The endpoints of all sockets, as they are bound."""
        return [router.endpoint for router in self._by_port.values()]

    def reply(self, frames: Sequence[bytes], owner: str) -> SendOutcome:
        """Send one message on the control socket, to the identity in its first frame."""
        return self.control.send(frames, Account(self._unsent.answers, owner))

    def send(self, peer: tuple[Port, bytes], header: bytes, body: Buffer, owner: str) -> SendOutcome:
        """Send one data command that is not a content."""
        port, identity = peer
        return self._by_port[port].send_command(identity, header, body, Account(self._unsent.answers, owner))

    def send_contents(
        self, peer: tuple[Port, bytes], headers: Sequence[bytes], bodies: Sequence[Buffer], owner: str
    ) -> tuple[int, SendOutcome]:
        """Send contents in a row. Returns how many were sent, and the outcome of the next one."""
        port, identity = peer
        return self._by_port[port].send_commands(
            identity, headers, bodies, Account(self._unsent.contents, owner)
        )

    def has_room(self, peer: tuple[Port, bytes], owner: str, octets: int) -> bool:
        """Whether contents of so many octets may be sent to a peer, unless its queue has too many messages."""
        port, identity = peer
        return self._by_port[port].has_room(identity, octets, Account(self._unsent.contents, owner))

    def most_unsent(self) -> int:
        """The most unsent octets since the last call."""
        return self._unsent.contents.most() + self._unsent.answers.most()

    def close(self) -> None:
        """Stop listening."""
        for router in self._by_port.values():
            router.close()
        self._zap.close()
        self._context.term()


def is_command(frames: Sequence[bytes]) -> bool:
    """Whether a message on a shared socket is a data command: the identity, a header, a body. A request has an empty
    frame between its envelope and its two (PROTOCOL.md 1), and no header is empty.
    """
    return len(frames) == 3 and bool(frames[1])


def _data_endpoint(endpoint: str, port: int, name: str) -> str:
    """The endpoint of a data socket: the same host with another port, or another path."""
    if endpoint.startswith("tcp://"):
        return f"{endpoint.rpartition(':')[0]}:{port or '*'}"
    return f"{endpoint}.{name}"
