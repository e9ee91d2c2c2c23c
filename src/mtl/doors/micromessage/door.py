"""The MicroMessage2 door: a TCP server, with TLS or without, a `MicroPeer` for each connection (MM2-02)."""

from __future__ import annotations

import asyncio
import socket

from mtl import __version__
from mtl.doors.config import DoorConfig
from mtl.doors.failure_log import PeerAddress
from mtl.doors.limits import MM2_WINDOW
from mtl.doors.listening import bound, serve_tcp, user_of
from mtl.doors.micromessage.negotiation import BATCH_ACK, SUPPORTED, Extension, ExtensionOffer, batch_ack
from mtl.doors.micromessage.peer import MicroPeer
from mtl.doors.peer_messages import DoorRefusal, peer_message
from mtl.doors.users import Bridges

NAME = "micromessage"

IDENTITY = f"mtl {__version__}"
"""A server's name and version (MM2-20)."""

OFFER = ExtensionOffer((), (batch_ack(MM2_WINDOW), *map(Extension, sorted(SUPPORTED - {BATCH_ACK}))))
"""No extension is required, all are optional."""


class MicroMessageDoor:
    """See the module. `endpoint` is HOST:PORT."""

    def __init__(self, config: DoorConfig, bridges: Bridges) -> None:
        self.endpoint = ""
        self.peers: set[MicroPeer] = set()
        self._config = config
        self._bridges = bridges
        self._server: asyncio.Server | None = None

    async def listen(self) -> None:
        """Begin. Raises `OptionError`, `BindFailed`."""
        self._server = await serve_tcp(self._config, self._config.place(NAME), self._accept)
        self.endpoint = bound(self._server)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        refusal, bridge, user = None, self._bridges.own, None
        if len(self.peers) >= self._config.max_sessions:
            refusal = f"{self._config.max_sessions} clients are this door's limit; try again later"
        else:
            try:
                user = user_of(self._config, writer)
                bridge = self._bridges.of(user)
            except DoorRefusal as unfit:
                refusal = peer_message(unfit)
        address = PeerAddress.at(writer.get_extra_info("peername"), user)
        peer = MicroPeer(bridge, reader, writer, address, OFFER, IDENTITY, lambda: self.peers.discard(peer))
        if refusal is not None:
            peer.fail(refusal)
        else:
            self.peers.add(peer)

    async def stop(self) -> None:
        """Stop reading; contents taken in are still confirmed and acknowledged while the broker answers."""
        assert self._server is not None
        self._server.close()
        for peer in self.peers:
            peer.stop_reading()
        await self._bridges.close()
        await asyncio.gather(*(peer.stop() for peer in list(self.peers)))


async def listen(config: DoorConfig, bridges: Bridges) -> MicroMessageDoor:
    """A MicroMessage2 door. Raises `OptionError`, `BindFailed`."""
    door = MicroMessageDoor(config, bridges)
    await door.listen()
    return door
