"""The MBWS door: a WebSocket server, a `MbwsPeer` for each session, and the connections that outlive them."""

from __future__ import annotations

import asyncio
import time
from importlib.resources import files

from mtl.doors.authentication import PeerAuthenticator
from mtl.doors.config import DoorConfig
from mtl.doors.limits import MBWS_RETAINED, MBWS_RETAINED_S
from mtl.doors.mbws.connection_records import record_of
from mtl.doors.mbws.connection_store import ConnectionStore
from mtl.doors.mbws.peer import MbwsPeer, PeerConnection
from mtl.doors.mbws.peering import Peering
from mtl.doors.mbws.recovery import Connections
from mtl.doors.mbws.session import LARGEST, MBLWS, MBWS
from mtl.doors.users import Bridges
from mtl.doors.websocket_server import DoorSocket, WebSocketServer

NAME = "mbws"

PAGE = files(__package__).joinpath("page.html")
"""The test page for browsers: an MBWS client in plain JavaScript."""


class MbwsDoor:
    """See the module. `endpoint` is a ws: or wss: URL."""

    def __init__(self, config: DoorConfig, bridges: Bridges) -> None:
        self.peers: set[MbwsPeer] = set()
        self._config = config
        self.bridges = bridges
        self._store = ConnectionStore(bridges.own)
        self._peering = Peering(config.peers, bridges.own)
        self._stopping = False
        self._connections: Connections[PeerConnection] = Connections(
            MBWS_RETAINED, MBWS_RETAINED_S, time.monotonic
        )
        self._server = WebSocketServer(
            config,
            PeerAuthenticator(config, bridges.logins.check),
            bridges.admit,
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
        await self._server.listen(self._config.address(NAME))
        self._peering.start()

    async def _serve(self, socket: DoorSocket) -> None:
        peer = MbwsPeer(socket, self._connections, self._store, self._retain)
        self.peers.add(peer)
        try:
            await peer.serve()
        finally:
            self.peers.discard(peer)

    async def _retain(self, connection: PeerConnection) -> None:
        """Retain a connection that waits for its client. A stopping door stores it before its session ends."""
        if not self._stopping or connection.stored:
            return
        connection.stored = True
        await connection.intake.wait_idle()
        if connection.intake.error is None:
            until = time.time() + self._connections.remaining_time(connection)
            await self._store.store(record_of(connection, connection.intake.confirmed, until))

    async def stop(self) -> None:
        """Stop receiving; contents taken in are still acknowledged. No Close is sent, so that clients reconnect, to
        this door after its restart or to another one.
        """
        self._server.close()
        self._stopping = True
        self._connections.forget_old()
        away = self._connections.waiting
        for peer in self.peers:
            peer.stop_receiving()
        await self._peering.stop()
        await self.bridges.close()
        await asyncio.gather(*map(self._retain, away))
        await self._server.closed()


async def listen(config: DoorConfig, bridges: Bridges) -> MbwsDoor:
    """An MBWS door. Raises `OptionError`, `BindFailed`."""
    door = MbwsDoor(config, bridges)
    await door.listen()
    return door
