"""Reactive Streams over WebSocket: the octets are sent in binary messages, whose boundaries have no meaning.

The subprotocol names the version of the protocol (RS-10). A goodbye ends the protocol. The Close of the WebSocket
follows it and carries no information.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from typing import Final

from websockets.exceptions import ConnectionClosed
from websockets.frames import CloseCode
from websockets.protocol import State

from mtl.doors.addresses import ListenAddress
from mtl.doors.authentication import PeerAuthenticator
from mtl.doors.config import DoorConfig
from mtl.doors.failure_log import PeerAddress
from mtl.doors.limits import RS_ELEMENT, RS_GOODBYE_S, RS_TEXT
from mtl.doors.peer_session import PeerSession
from mtl.doors.reactive.codec import VERSION
from mtl.doors.reactive.transports import Transport
from mtl.doors.websocket import BatchedWebSocket, DoorSocket, WebSocketServer, break_off
from mtl.doors.websocket_client import open_websocket

SUBPROTOCOL: Final = f"reactive-streams.v{VERSION}"
"""Our choice: the document does not name a subprotocol."""

LARGEST: Final = RS_ELEMENT + RS_TEXT
"""Maximum of octets of one WebSocket message: the largest protocol message fits."""


class WebSocketTransport:
    """A WebSocket of either side. See `Transport` for its methods."""

    def __init__(self, websocket: BatchedWebSocket) -> None:
        self._websocket = websocket
        self._text = False

    @property
    def peer(self) -> object:
        """See `Transport`."""
        return self._websocket.remote_address

    async def read(self) -> bytes:
        """See `Transport`. A text message is a violation: it ends the connection."""
        while not self._text:
            octets = bytearray()
            try:
                for message in await self._websocket.recv_all():
                    if isinstance(message, str):
                        self._text = True
                        break
                    octets += message
            except ConnectionClosed:
                return b""
            if octets:
                return bytes(octets)
        await self._closed(CloseCode.UNSUPPORTED_DATA, "Reactive Streams are in binary messages")
        return b""

    def write(self, octets: bytes) -> None:
        """See `Transport`. The library's own `send` would wait, and could change the order."""
        if self._websocket.state is State.OPEN and not self._websocket.transport.is_closing():
            self._websocket.protocol.send_binary(octets)
            self._websocket.send_data()

    @property
    def waiting(self) -> int:
        """See `Transport`."""
        return self._websocket.transport.get_write_buffer_size()

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
        break_off(self._websocket)

    async def _closed(self, code: CloseCode, words: str) -> None:
        closing = asyncio.create_task(self._websocket.close(code, words))
        try:
            async with asyncio.timeout(RS_GOODBYE_S):
                while not closing.done():
                    await self._websocket.recv()
        except (TimeoutError, ConnectionClosed):
            pass
        finally:
            self.abort()
            await asyncio.wait({closing})


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
