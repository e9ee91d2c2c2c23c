"""The broker's three sockets and the poller around them.

Control, packed data and plain data are separate because a high-water mark is per socket and counts messages, not
octets. POLLOUT is never polled: on a ROUTER it is true with every peer full.
"""

from __future__ import annotations

from collections.abc import Iterator

import zmq

from mtl import limits
from mtl.net.ports import Port
from mtl.net.router import RouterSocket, Sent
from mtl.wire.commands import Buffer


class BrokerSockets:
    """Bound and polled together; `wakeup` is a descriptor that ends a poll early."""

    def __init__(self, endpoint: str, packed_port: int, plain_port: int, wakeup: int) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        control = limits.MAX_CONTROL_FRAME * 2
        self.control = RouterSocket(self._context, endpoint, hwm=limits.CONTROL_HWM, max_frame=control)
        self.packed = RouterSocket(
            self._context,
            _beside(endpoint, packed_port, "packed"),
            hwm=limits.PACKED_HWM,
            max_frame=limits.MAX_FRAME,
        )
        self.plain = RouterSocket(
            self._context,
            _beside(endpoint, plain_port, "plain"),
            hwm=limits.PLAIN_HWM,
            max_frame=limits.MAX_FRAME,
        )
        self._by_port = {Port.CONTROL: self.control, Port.PACKED: self.packed, Port.PLAIN: self.plain}
        self._poller = zmq.Poller()
        for router in self._by_port.values():
            self._poller.register(router.socket, zmq.POLLIN)
        self._poller.register(wakeup, zmq.POLLIN)
        self.misframed = 0

    def poll(self, patience_ms: int) -> set[Port]:
        """Which sockets have something to read, after waiting at most so long."""
        readable = {source for source, _ in self._poller.poll(patience_ms)}
        return {port for port, router in self._by_port.items() if router.socket in readable}

    def requests(self) -> Iterator[list[bytes]]:
        """Control messages, all frames of them."""
        yield from self.control.drain(limits.DRAIN_MESSAGES, copy=True)  # type: ignore[misc]  # copies are bytes

    def commands(self, port: Port) -> Iterator[tuple[bytes, bytes, Buffer]]:
        """Data messages of exactly two frames; others are dropped and counted (MTL-110)."""
        zero_copy = port is Port.PACKED
        for frames in self._by_port[port].drain(limits.DRAIN_MESSAGES, copy=not zero_copy):
            if len(frames) != 3:
                self.misframed += 1
            elif zero_copy:
                identity, header, body = frames
                yield identity.bytes, header.bytes, body.buffer  # type: ignore[union-attr]  # frames, not bytes
            else:
                yield frames[0], frames[1], frames[2]  # type: ignore[misc]  # copied frames are bytes

    def send(self, port: Port, identity: bytes, header: bytes, body: Buffer) -> Sent:
        """Send one data command; a large body leaves from the memory it is in."""
        router = self._by_port[port]
        if len(body) >= limits.ZERO_COPY:
            return router.send((identity, header, body), copy=False)  # type: ignore[arg-type]
        return router.send((identity, header, body))  # type: ignore[arg-type]

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
