"""ZAP (RFC 27): libzmq asks here about every connection before its handshake ends, with CURVE and without.

The answer's User-Id is the connection's own (`origin.Connection`): libzmq attaches it to every message, and a peer
cannot choose it. Which user a CURVE key belongs to is the core's to say at any time, so that a change counts for
connections that are there already.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Final

import zmq
from zmq.utils import z85

from mtl.net.open_connections import OpenConnections
from mtl.net.pace import Pace

ENDPOINT: Final = "inproc://zeromq.zap.01"
DOMAIN: Final = "mtl"

_VERSION: Final = b"1.0"
_KEY_OCTETS: Final = 32
_NULL, _CURVE = b"NULL", b"CURVE"


TellRefused = Callable[[str, str, str], None]


class ZapHandler:
    """Answers libzmq's questions, in the loop that polls `socket`.

    `admits` decides by the client's key in Z85 who is let in. None: CURVE is not used, and NULL is let in. `pace`
    limits how fast one address may connect, and `opened` how many connections it may have at the same time. The
    monitors of the sockets are read before `answer`. `refused` is told the address, the key (empty without one) and
    the reason of every connection that is not let in. Make it before the first socket of its context that is bound
    with the domain: without a handler libzmq refuses connections.
    """

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        admits: Callable[[str], bool] | None,
        pace: Pace,
        refused: TellRefused = lambda _address, _key, _reason: None,
        opened: OpenConnections | None = None,
    ) -> None:
        self.socket = context.socket(zmq.REP)
        self.socket.linger = 0
        self.socket.bind(ENDPOINT)
        self._admits = admits
        self._pace = pace
        self._refused = refused
        self._opened = opened or OpenConnections()
        self._numbers = count(1)
        self.denied = 0
        """Keys that were not let in, and questions that make no sense."""
        self.hurried = 0
        """Connections refused because their address opened too many at once, or has too many open."""

    def answer(self) -> None:
        """Answer all waiting questions."""
        while True:
            try:
                frames = self.socket.recv_multipart(zmq.DONTWAIT)
            except zmq.Again:
                return
            self.socket.send_multipart(self._judge(frames))

    def _judge(self, frames: list[bytes]) -> list[bytes]:
        version, request, _, octets, *rest = [*frames, b"", b"", b"", b""]
        address = octets.decode("ascii", "replace")
        key = self._key(rest) if version == _VERSION else None
        if key is None or (self._admits is not None and not self._admits(key)):
            self.denied += 1
            self._refused(address, key or "", "this key is not let in")
            return [_VERSION, request, b"400", b"this key is not let in", b"", b""]
        if not self._pace.admits(address):
            return self._hurried(
                request, address, key, f"too many connections: {self._pace.limit} is the limit"
            )
        if not self._opened.admits(address):
            return self._hurried(
                request, address, key, f"too many open connections: {self._opened.limit} is the limit"
            )
        connection = f"{next(self._numbers)} {key}" if key else str(next(self._numbers))
        return [_VERSION, request, b"200", b"OK", connection.encode(), b""]

    def _hurried(self, request: bytes, address: str, key: str, reason: str) -> list[bytes]:
        self.hurried += 1
        self._refused(address, key, reason)
        return [_VERSION, request, b"300", f"{reason}, try again".encode(), b"", b""]

    def _key(self, rest: list[bytes]) -> str | None:
        """The client's key, of the end of a question (identity, mechanism, key). Empty for NULL where CURVE is not
        used, None for other mechanisms and for what is no key.
        """
        credentials = dict(enumerate(rest))
        mechanism, key = credentials.get(1, b""), credentials.get(2, b"")
        if self._admits is None:
            return "" if mechanism == _NULL else None
        if mechanism != _CURVE or len(key) != _KEY_OCTETS:
            return None
        return z85.encode(key).decode()

    def close(self) -> None:
        """Answer no more."""
        self.socket.close()
