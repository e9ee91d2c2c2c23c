"""Reactive Streams over WebSocket: the octets are sent in binary messages, whose boundaries have no meaning.

The subprotocol names the version of the protocol (RS-10). A goodbye ends the protocol. The Close of the WebSocket
follows it and carries no information.
"""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable
from typing import Final

from websockets.frames import CloseCode

from mtl.doors.addresses import ListenAddress
from mtl.doors.authentication import PeerAuthenticator
from mtl.doors.config import DoorConfig
from mtl.doors.failure_log import PeerAddress
from mtl.doors.limits import RS_ELEMENT, RS_TEXT
from mtl.doors.peer_session import PeerSession
from mtl.doors.reactive.codec import VERSION
from mtl.doors.reactive.transports import Transport
from mtl.doors.websocket import WebSocket
from mtl.doors.websocket_client import open_websocket
from mtl.doors.websocket_server import DoorSocket, WebSocketServer
from mtl.errors import Malformed

SUBPROTOCOL: Final = f"reactive-streams.v{VERSION}"
"""Our choice: the document does not name a subprotocol."""

LARGEST: Final = RS_ELEMENT + RS_TEXT
"""Maximum of octets of one WebSocket message: the largest protocol message fits."""


class WebSocketTransport:
    """A WebSocket of either side. See `Transport` for its methods."""

    def __init__(self, websocket: WebSocket) -> None:
        self._websocket = websocket
        self._text = False

    @property
    def peer(self) -> object:
        """See `Transport`."""
        return self._websocket.remote_address

    async def read(self, incomplete: int = 0) -> bytes:
        """See `Transport`. A text message is a violation: it ends the connection."""
        self._websocket.retained = incomplete
        while not self._text:
            try:
                messages = await self._websocket.messages()
            except Malformed:
                return b""
            if not messages:
                return b""
            pieces = []
            for message in messages:
                if isinstance(message, str):
                    self._text = True
                    break
                pieces.append(message)
            if octets := b"".join(pieces):
                return octets
        await self._closed(CloseCode.UNSUPPORTED_DATA, "Reactive Streams are in binary messages")
        return b""

    def write(self, octets: bytes) -> None:
        """See `Transport`."""
        self._websocket.write((octets,))

    @property
    def waiting(self) -> int:
        """See `Transport`."""
        return self._websocket.unsent

    async def wait_drained(self) -> None:
        """See `Transport`."""
        try:
            await self._websocket.drain()
        except OSError:
            pass

    async def close_transport(self) -> None:
        """See `Transport`."""
        await self._closed(CloseCode.NORMAL_CLOSURE, "")

    def abort(self) -> None:
        """See `Transport`."""
        self._websocket.drop()

    async def _closed(self, code: CloseCode, words: str) -> None:
        self._websocket.drop_input()
        await self._websocket.close(code, words)


async def open_websocket_transport(
    url: str, tls: ssl.SSLContext | None, authorization: str | None
) -> WebSocketTransport:
    """A connection to a door at a ws: or wss: URL; see `open_websocket`."""
    return WebSocketTransport(
        await open_websocket(url, tls, subprotocol=SUBPROTOCOL, largest=LARGEST, authorization=authorization)
    )


async def listen(
    config: DoorConfig,
    address: ListenAddress,
    authenticator: PeerAuthenticator,
    admit: Callable[[PeerAddress], PeerSession],
    serve_one: Callable[[Transport, PeerSession], Awaitable[None]],
) -> WebSocketServer:
    """A server at an address; `serve_one` gets a connection and its session. Raises `OptionError`, `BindFailed`."""

    async def serve(websocket: DoorSocket) -> None:
        websocket.answer_close()  # contents have their own confirmations
        await serve_one(WebSocketTransport(websocket), websocket.session)

    server = WebSocketServer(config, authenticator, admit, serve, subprotocols=[SUBPROTOCOL], largest=LARGEST)
    await server.listen(address)
    return server
