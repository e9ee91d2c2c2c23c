"""The MicroMessage2 door: a TCP server, with TLS or without, a `MicroPeer` for each connection (MM2-02)."""

from __future__ import annotations

import asyncio
import socket

from mtl import __version__
from mtl.doors.config import DoorConfig
from mtl.doors.failure_log import PeerAddress
from mtl.doors.limits import DOOR_STOP_S, MM2_READ, MM2_WINDOW
from mtl.doors.listening import TcpServer, door_entrance, logged_in, serve_tcp, user_of
from mtl.doors.micromessage.negotiation import BATCH_ACK, SUPPORTED, Extension, ExtensionOffer, batch_ack
from mtl.doors.micromessage.peer import MicroPeer
from mtl.doors.micromessage.session import MicroRole, MicroSession
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
        self.bridges = bridges
        self._entrance = door_entrance()
        self._server: TcpServer | None = None

    async def listen(self) -> None:
        """Begin. Raises `OptionError`, `BindFailed`."""
        self._server = await serve_tcp(self._config, self._config.address(NAME), self._entrance, self._accept)
        self.endpoint = self._server.endpoint

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A connection with TLS's handshake done. The peer has logged in when it has sent octets, too."""
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        try:
            first = await reader.read(MM2_READ)
        except OSError:
            first = b""
        if not first:
            writer.close()
            return
        try:
            user = user_of(self._config, writer)
            session = self.bridges.admit(PeerAddress.at(writer.get_extra_info("peername"), user))
        except DoorRefusal as unfit:
            refused = MicroSession(MicroRole.SERVER, OFFER, IDENTITY)
            refused.fail(peer_message(unfit))
            writer.write(refused.to_send())
            writer.close()
            asyncio.get_running_loop().call_later(DOOR_STOP_S, writer.transport.abort)
            return
        logged_in(self._entrance, writer)
        peer = MicroPeer(session, reader, writer, OFFER, IDENTITY, lambda: self.peers.discard(peer), first)
        self.peers.add(peer)

    async def stop(self) -> None:
        """Stop reading; contents taken in are still confirmed and acknowledged while the broker answers."""
        assert self._server is not None
        self._server.close()
        self._entrance.close()
        for peer in self.peers:
            peer.stop_reading()
        await self.bridges.close()
        await asyncio.gather(*(peer.stop() for peer in list(self.peers)))


async def listen(config: DoorConfig, bridges: Bridges) -> MicroMessageDoor:
    """A MicroMessage2 door. Raises `OptionError`, `BindFailed`."""
    door = MicroMessageDoor(config, bridges)
    await door.listen()
    return door
