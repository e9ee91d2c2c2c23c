"""ZAP (RFC 27): libzmq sends a request for every connection before its handshake ends, with CURVE and without.

The User-Id of the reply identifies the connection (`origin.Connection`): libzmq attaches it to every message, and a
peer cannot choose it. The core maps a CURVE key to a user for each request, so that changes also apply to existing
connections.
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
    """Answers libzmq's ZAP requests, in the loop that polls `socket`.

    `admits` decides by the client's key in Z85 whether it may connect. None: CURVE is not used, and NULL is accepted.
    `pace` limits how fast one address may connect, and `opened` how many connections it may have at the same time. The
    caller reads the monitors of the sockets before `answer`. `refused` is called with the address, the key (empty
    without one) and the reason of every refused connection. Make the handler before the first socket of its context is
    bound with the domain: without a handler libzmq refuses connections.
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
        """Requests with a key that may not connect, and malformed requests."""
        self.hurried = 0
        """Connections refused because their address opened them too fast, or has too many open."""

    def answer(self) -> None:
        """Answer all waiting requests."""
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
            self._refused(address, key or "", "this key is not accepted")
            return [_VERSION, request, b"400", b"this key is not accepted", b"", b""]
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
        """The client's key in Z85, from the end of a request (identity, mechanism, key). Empty for NULL where CURVE is
        not used, None for other mechanisms and malformed keys.
        """
        credentials = dict(enumerate(rest))
        mechanism, key = credentials.get(1, b""), credentials.get(2, b"")
        if self._admits is None:
            return "" if mechanism == _NULL else None
        if mechanism != _CURVE or len(key) != _KEY_OCTETS:
            return None
        return z85.encode(key).decode()

    def close(self) -> None:
        """Close the socket: libzmq refuses further connections."""
        self.socket.close()
