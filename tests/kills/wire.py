"""The connection between Spark and the broker's control port: it can be stopped in either direction, and inspected."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.cutting_proxy import BEHIND, CuttingProxy

TO_BROKER, FROM_BROKER = 0, 1
"""Directions: an index into a pair (near, far)."""


class Wire(CuttingProxy):
    """A proxy before one port of the broker, on a port of its own, which stays when the broker is started again."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self._stopped: int | None = None
        listener = socket.create_server((BEHIND, 0))
        self.endpoint = f"tcp://{BEHIND}:{listener.getsockname()[1]}"
        with self._lock:
            self._listeners[listener] = port

    @contextmanager
    def stopped(self, direction: int) -> Iterator[None]:
        """Octets sent in this direction during the block arrive after it."""
        with self._lock:
            self._stopped = direction
        try:
            yield
        finally:
            with self._lock:
                self._stopped = None

    def waiting(self, text: bytes) -> bool:
        """Whether `text` was sent in the direction that is stopped."""
        with self._lock:
            assert self._stopped is not None
            return any(text in _peek(pair[self._stopped]) for pair in self._pairs)

    def _ways(
        self, pair: tuple[socket.socket, socket.socket]
    ) -> Iterator[tuple[socket.socket, socket.socket]]:
        for direction, way in enumerate((pair, pair[::-1])):
            if direction != self._stopped:
                yield way


def _peek(peer: socket.socket) -> bytes:
    try:
        return peer.recv(1 << 20, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except OSError:
        return b""
