"""The MBWS door: a WebSocket server, a `Peer` for each session, and the connections that outlive them."""

from __future__ import annotations

import time
from importlib.resources import files

from mtl.doors.bridge import Bridge
from mtl.doors.config import DoorConfig
from mtl.doors.limits import MBWS_RETAINED, MBWS_RETAINED_S
from mtl.doors.mbws.peer import Line, Peer
from mtl.doors.mbws.recovery import Connections
from mtl.doors.mbws.session import LARGEST, MBLWS, MBWS
from mtl.doors.websocket import Socket, WebSocketServer

DEFAULT_LISTEN = "127.0.0.1:5979"
"""Ours: the document recommends TLS at 443 (MBWS-45), which is the configuration's to say."""

PAGE = files(__package__).joinpath("page.html")
"""What a browser finds: an MBWS client in plain JavaScript."""


class MbwsDoor:
    """See the module. `endpoint` is a ws: or wss: URL."""

    def __init__(self, config: DoorConfig, bridge: Bridge) -> None:
        self.peers: set[Peer] = set()
        self._bridge = bridge
        self._connections: Connections[Line] = Connections(MBWS_RETAINED, MBWS_RETAINED_S, time.monotonic)
        self._server = WebSocketServer(
            config, self._serve, subprotocols=(MBWS, MBLWS), largest=LARGEST, page=PAGE.read_text("utf-8")
        )

    @property
    def endpoint(self) -> str:
        """Where it listens."""
        return self._server.endpoint

    async def listen(self) -> None:
        """Begin. Raises `OptionError`, `BindFailed`."""
        await self._server.listen(DEFAULT_LISTEN)

    async def _serve(self, socket: Socket) -> None:
        peer = Peer(socket, self._bridge, self._connections)
        self.peers.add(peer)
        try:
            await peer.serve()
        finally:
            self.peers.discard(peer)

    async def stop(self) -> None:
        """Hear no more; what was taken in is still acknowledged. No Close: clients that can come back will."""
        self._server.close()
        for peer in self.peers:
            peer.rest()
        await self._bridge.close()
        await self._server.closed()


async def listen(config: DoorConfig, bridge: Bridge) -> MbwsDoor:
    """An MBWS door on `config.listen`, HOST:PORT. Raises `OptionError`, `BindFailed`."""
    door = MbwsDoor(config, bridge)
    await door.listen()
    return door
