"""The broker's three sockets and the poller around them.

Control, packed data and plain data are separate because a high-water mark is per socket and counts messages, not
octets. POLLOUT is never polled: on a ROUTER it is true with every peer full.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import zmq

from mtl import limits
from mtl.net.ports import Port
from mtl.net.router import Misframed, RouterSocket, Sent
from mtl.wire.commands import Buffer


class BrokerSockets:
    """Bound and polled together; `wakeup` is a descriptor that ends a poll early."""

    def __init__(self, endpoint: str, packed_port: int, plain_port: int, wakeup: int) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        control = limits.MAX_CONTROL_FRAME * 2
        packed, plain = _beside(endpoint, packed_port, "packed"), _beside(endpoint, plain_port, "plain")
        with ExitStack() as opened:  # closed again should one of them not be bound
            opened.callback(self._context.term)
            self.control = self._bind(opened, endpoint, limits.CONTROL_HWM, control)
            self.packed = self._bind(opened, packed, limits.PACKED_HWM, limits.MAX_FRAME)
            self.plain = self._bind(opened, plain, limits.PLAIN_HWM, limits.MAX_FRAME)
            opened.pop_all()
        self._by_port = {Port.CONTROL: self.control, Port.PACKED: self.packed, Port.PLAIN: self.plain}
        self._poller = zmq.Poller()
        for router in self._by_port.values():
            self._poller.register(router.socket, zmq.POLLIN)
        self._poller.register(wakeup, zmq.POLLIN)
        self.misframed = 0

    def _bind(self, opened: ExitStack, endpoint: str, hwm: int, max_frame: int) -> RouterSocket:
        router = RouterSocket(self._context, endpoint, hwm=hwm, max_frame=max_frame)
        opened.callback(router.close)
        return router

    def poll(self, patience_ms: int) -> set[Port]:
        """Which sockets have something to read, after waiting at most so long."""
        readable = {source for source, _ in self._poller.poll(patience_ms)}
        return {port for port, router in self._by_port.items() if router.socket in readable}

    def requests(self) -> Iterator[list[bytes]]:
        """Control messages, all frames of them."""
        for _ in range(limits.DRAIN_MESSAGES):
            frames = self.control.receive()
            if frames is None:
                return
            yield frames

    def commands(self, port: Port) -> Iterator[tuple[bytes, bytes, Buffer]]:
        """Data messages of exactly two frames, behind the identity; others are dropped and counted (MTL-110)."""
        router = self._by_port[port]
        view = port is Port.PACKED
        for _ in range(limits.DRAIN_MESSAGES):
            try:
                command = router.receive_command(view=view)
            except Misframed:
                self.misframed += 1
                continue
            if command is None:
                return
            yield command

    def send(self, port: Port, identity: bytes, header: bytes, body: Buffer) -> Sent:
        """Send one data command."""
        return self._by_port[port].send_command(identity, header, body)

    def close(self) -> None:
        """Stop listening."""
        for router in self._by_port.values():
            router.close()
        self._context.term()


def _beside(endpoint: str, port: int, name: str) -> str:
    """The endpoint of a data socket: the same host and a port of its own, or a path of its own."""
    if endpoint.startswith("tcp://"):
        return f"{endpoint.rpartition(':')[0]}:{port or '*'}"
    return f"{endpoint}.{name}"
