"""The MBWS door: a WebSocket server, a `Peer` for each session, and the connections that outlive them."""

from __future__ import annotations

import time
from importlib.resources import files

from mtl.doors.config import DoorConfig
from mtl.doors.gate import Gate
from mtl.doors.limits import MBWS_RETAINED, MBWS_RETAINED_S
from mtl.doors.mbws.peer import Line, Peer
from mtl.doors.mbws.recovery import Connections
from mtl.doors.mbws.session import LARGEST, MBLWS, MBWS
from mtl.doors.telling import Unfit
from mtl.doors.users import Bridges
from mtl.doors.websocket import Socket, WebSocketServer

NAME = "mbws"

PAGE = files(__package__).joinpath("page.html")
"""What a browser finds: an MBWS client in plain JavaScript."""


class MbwsDoor:
    """See the module. `endpoint` is a ws: or wss: URL."""

    def __init__(self, config: DoorConfig, bridges: Bridges) -> None:
        self.peers: set[Peer] = set()
        self._config = config
        self._bridges = bridges
        self._connections: Connections[Line] = Connections(MBWS_RETAINED, MBWS_RETAINED_S, time.monotonic)
        self._server = WebSocketServer(
            config,
            Gate(config, bridges.logins.check),
            self._serve,
            subprotocols=(MBWS, MBLWS),
            largest=LARGEST,
            page=PAGE.read_text("utf-8"),
        )

    @property
    def endpoint(self) -> str:
        """Where it listens."""
        return self._server.endpoint

    async def listen(self) -> None:
        """Begin. Raises `OptionError`, `BindFailed`."""
        await self._server.listen(self._config.place(NAME))

    async def _serve(self, socket: Socket) -> None:
        try:
            bridge = self._bridges.of(socket.user)
        except Unfit as full:
            await socket.refuse(full)
            return
        peer = Peer(socket, bridge, self._connections)
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
        await self._bridges.close()
        await self._server.closed()


async def listen(config: DoorConfig, bridges: Bridges) -> MbwsDoor:
    """An MBWS door. Raises `OptionError`, `BindFailed`."""
    door = MbwsDoor(config, bridges)
    await door.listen()
    return door
