"""Reactive Streams over WebSocket: the octets of the link are those of binary messages, whose bounds mean nothing.

The version of the protocol is that of the subprotocol, too (RS-10). The end of the protocol is its goodbye; the Close
of the WebSocket follows it, and says nothing more.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from typing import Final

from websockets.exceptions import ConnectionClosed
from websockets.frames import CloseCode
from websockets.protocol import State

from mtl.doors.config import DoorConfig
from mtl.doors.gate import Gate
from mtl.doors.limits import RS_ELEMENT, RS_GOODBYE_S, RS_TEXT
from mtl.doors.places import ListenPlace
from mtl.doors.reactive.codec import VERSION
from mtl.doors.reactive.transports import Transport
from mtl.doors.websocket import Socket, Together, WebSocketServer, break_off
from mtl.doors.websocket_client import open_websocket

SUBPROTOCOL: Final = f"reactive-streams.v{VERSION}"
"""Our choice: the document names none."""

LARGEST: Final = RS_ELEMENT + RS_TEXT
"""Maximum of octets of one WebSocket message: the largest protocol message fits."""


class WebSocketTransport:
    """A WebSocket of either side. See `Transport` for what its methods promise."""

    def __init__(self, websocket: Together) -> None:
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
        """See `Transport`. The library's own `send` would wait, and be one more place where its order is decided."""
        if self._websocket.state is State.OPEN and not self._websocket.transport.is_closing():
            self._websocket.protocol.send_binary(octets)
            self._websocket.send_data()

    @property
    def waiting(self) -> int:
        """See `Transport`."""
        return self._websocket.transport.get_write_buffer_size()

    async def drained(self) -> None:
        """See `Transport`."""
        try:
            await self._websocket.drain()
        except OSError:
            pass

    async def shut(self) -> None:
        """See `Transport`."""
        await self._closed(CloseCode.NORMAL_CLOSURE, "")

    def give_up(self) -> None:
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
            self.give_up()
            await asyncio.wait({closing})


async def reached(url: str, tls: ssl.SSLContext | None, authorization: str | None) -> WebSocketTransport:
    """A connection to a door at a ws: or wss: URL; see `open_websocket`."""
    return WebSocketTransport(
        await open_websocket(url, tls, subprotocol=SUBPROTOCOL, largest=LARGEST, authorization=authorization)
    )


async def listen(
    config: DoorConfig,
    place: ListenPlace,
    gate: Gate,
    serve_one: Callable[[Transport, str | None], Awaitable[None]],
) -> WebSocketServer:
    """A server at that place; `serve_one` has a connection and its user. Raises `OptionError`, `BindFailed`."""

    async def serve(websocket: Socket) -> None:
        websocket.conclude()  # an answered Close confirms no contents: confirmations do that
        await serve_one(WebSocketTransport(websocket), websocket.user)

    server = WebSocketServer(config, gate, serve, subprotocols=[SUBPROTOCOL], largest=LARGEST)
    await server.listen(place)
    return server
