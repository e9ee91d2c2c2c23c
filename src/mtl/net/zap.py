"""ZAP (RFC 27): says for each CURVE handshake whether the client's key is let in, and by what name it goes.

A message's User-Id is the client's key from then on: which user that is, if any, is the core's to say at any time, so
that a change counts for connections that are there already.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import zmq
from zmq.utils import z85

ENDPOINT: Final = "inproc://zeromq.zap.01"
DOMAIN: Final = "mtl"

_VERSION: Final = b"1.0"
_KEY_OCTETS: Final = 32


class ZapHandler:
    """Answers libzmq's questions, in the broker's poller. `admits` decides by the key in Z85.

    Make it before the first CURVE socket of its context: without a handler libzmq would let everybody in.
    """

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], admits: Callable[[str], bool]) -> None:
        self.socket = context.socket(zmq.REP)
        self.socket.linger = 0
        self.socket.bind(ENDPOINT)
        self._admits = admits
        self.denied = 0

    def answer(self) -> None:
        """Answer what was asked so far."""
        while True:
            try:
                frames = self.socket.recv_multipart(zmq.DONTWAIT)
            except zmq.Again:
                return
            self.socket.send_multipart(self._judge(frames))

    def _judge(self, frames: list[bytes]) -> list[bytes]:
        version, request, *rest = [*frames, b"", b""]
        key = self._key(rest) if version == _VERSION else None
        if key is not None and self._admits(key):
            return [_VERSION, request, b"200", b"OK", key.encode(), b""]
        self.denied += 1
        return [_VERSION, request, b"400", b"this key is not let in", b"", b""]

    def _key(self, rest: list[bytes]) -> str | None:
        """The client's key, of a question about CURVE: domain, address, identity, mechanism, key."""
        credentials = dict(enumerate(rest))
        key = credentials.get(4, b"")
        if credentials.get(3) != b"CURVE" or len(key) != _KEY_OCTETS:
            return None
        return z85.encode(key).decode()

    def close(self) -> None:
        """Answer no more."""
        self.socket.close()
