"""The MicroMessage2 door: a TCP server, with TLS or without, a `Peer` for each connection (MM2-02)."""

from __future__ import annotations

import asyncio
import socket

from mtl import __version__
from mtl.doors.bridge import Bridge
from mtl.doors.config import DoorConfig
from mtl.doors.limits import MM2_WINDOW
from mtl.doors.listening import bound, serve_tcp
from mtl.doors.micromessage.negotiation import BATCH_ACK, SUPPORTED, Extension, Offer, batch_ack
from mtl.doors.micromessage.peer import Peer

DEFAULT_LISTEN = "127.0.0.1:5978"
"""Ours: the document names no port."""

IDENTITY = f"mtl {__version__}"
"""A server's name and version (MM2-20)."""

OFFER = Offer((), (batch_ack(MM2_WINDOW), *map(Extension, sorted(SUPPORTED - {BATCH_ACK}))))
"""Nothing is required, everything can be had."""


class MicroMessageDoor:
    """See the module. `endpoint` is HOST:PORT."""

    def __init__(self, config: DoorConfig, bridge: Bridge) -> None:
        self.endpoint = ""
        self.peers: set[Peer] = set()
        self._config = config
        self._bridge = bridge
        self._server: asyncio.Server | None = None

    async def listen(self) -> None:
        """Begin. Raises `OptionError`, `BindFailed`."""
        self._server = await serve_tcp(self._config, DEFAULT_LISTEN, self._accepted)
        self.endpoint = bound(self._server)

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        peer = Peer(self._bridge, reader, writer, OFFER, IDENTITY, lambda: self.peers.discard(peer))
        if len(self.peers) >= self._config.max_sessions:
            peer.fail(f"{self._config.max_sessions} clients are this door's limit; try again later")
        else:
            self.peers.add(peer)

    async def stop(self) -> None:
        """Read no more; what was taken in is still confirmed and acknowledged as long as the broker does."""
        assert self._server is not None
        self._server.close()
        for peer in self.peers:
            peer.rest()
        await self._bridge.close()
        await asyncio.gather(*(peer.stop() for peer in list(self.peers)))


async def listen(config: DoorConfig, bridge: Bridge) -> MicroMessageDoor:
    """A MicroMessage2 door on `config.listen`, HOST:PORT. Raises `OptionError`, `BindFailed`."""
    door = MicroMessageDoor(config, bridge)
    await door.listen()
    return door
