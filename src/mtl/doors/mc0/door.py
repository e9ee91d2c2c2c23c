"""The mc0 door: one ROUTER, a `Mc0Peer` for each connection (MC0-01).

A ROUTER identity is not authentication: after the end of its connection another peer can announce it. So a peer ends
with its connection. A silent peer's connection is closed, so that its identity is free when it reconnects.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from functools import partial
from pathlib import Path

from mtl.doors.bridge import Bridge
from mtl.doors.config import DoorConfig
from mtl.doors.failure_log import PeerAddress
from mtl.doors.identity import users_of
from mtl.doors.limits import MC0_ABSENT, MC0_HWM, MC0_INBOX, MC0_QUEUED, MC0_WAITING
from mtl.doors.mc0.codec import BadMessage, decode, encode, error
from mtl.doors.mc0.peer import Mc0Peer
from mtl.doors.peer_messages import DoorRefusal, peer_message
from mtl.doors.users import Bridges
from mtl.limits import MAX_FRAME
from mtl.net.aio import Arrived, AsyncRouter
from mtl.net.curve import read_pair
from mtl.net.ipc import admit
from mtl.net.origin import Connection, key_of

NAME = "mc0"


class Mc0Door:
    """See the module. `endpoint` is the ROUTER's."""

    def __init__(self, config: DoorConfig, bridges: Bridges) -> None:
        self._config = config
        self._bridges = bridges
        self._users = users_of(config.peer_keys)
        """By CURVE key."""
        keys = read_pair(Path(config.curve_key_file)) if config.curve_key_file is not None else None
        self._router = AsyncRouter(
            str(config.place(NAME)),
            hwm=MC0_HWM,
            max_frame=MAX_FRAME,
            max_queued=MC0_QUEUED,
            max_waiting=MC0_WAITING,
            curve_secret=keys[1] if keys is not None else None,
            admits=self._users.__contains__ if config.authenticates else None,
            lost=self._handle_lost,
        )
        self.endpoint = self._router.endpoint
        admit(self.endpoint, config.socket_mode)
        self.peers: dict[Connection, Mc0Peer] = {}
        self._absent: OrderedDict[bytes, None] = OrderedDict()
        """Identities whose connections were closed for silence: they get an ERROR about it when they return."""
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        while True:
            for arrived in await self._router.receive(MC0_INBOX):
                await self._handle_arrived(arrived)

    async def _handle_arrived(self, arrived: Arrived) -> None:
        peer = self.peers.get(arrived.connection)
        if not arrived.messages:
            if peer is not None:
                await peer.inbox.put([])
            return
        if peer is None:
            if len(self.peers) >= self._config.max_sessions:
                words = f"{self._config.max_sessions} clients are this door's limit; try again later"
                self._refuse(arrived, words)
                return
            try:
                user = self._users.get(key_of(arrived.connection))
                bridge = self._bridges.of(user)
            except DoorRefusal as unfit:
                self._refuse(arrived, peer_message(unfit))
                return
            peer = self._admit(arrived, bridge, user)
        await peer.inbox.put(arrived.messages)

    def _admit(self, arrived: Arrived, bridge: Bridge, user: str | None) -> Mc0Peer:
        connection, identity = arrived.connection, arrived.identity

        def remove() -> None:
            del self.peers[connection]

        peer = Mc0Peer(
            bridge,
            PeerAddress(self._router.address(connection), user=user),
            partial(self._router.send, connection, identity),
            time.monotonic,
            remove,
            partial(self._free_identity, connection, identity),
            absent=identity in self._absent,
        )
        self._absent.pop(identity, None)
        self.peers[connection] = peer
        return peer

    def _free_identity(self, connection: Connection, identity: bytes) -> None:
        """Free the identity that a silent peer chose. An identity chosen by libzmq is unique and not reused."""
        if identity.startswith(b"\0"):
            return
        self._absent[identity] = None
        if len(self._absent) > MC0_ABSENT:
            self._absent.popitem(last=False)
        self._router.cut(connection)

    def _handle_lost(self, connection: Connection) -> None:
        peer = self.peers.get(connection)
        if peer is not None:
            peer.connection_lost()

    def _refuse(self, arrived: Arrived, words: str) -> None:
        try:
            message, delimited = decode(arrived.messages[0])
        except BadMessage:
            return
        frames = encode(error(words, message.id), delimited=delimited)
        self._router.send(arrived.connection, arrived.identity, frames)

    async def stop(self) -> None:
        """Stop reading; contents taken in are still confirmed and answered while the broker answers."""
        self._reading.cancel()
        await self._bridges.close()
        await asyncio.gather(*(peer.stop() for peer in list(self.peers.values())))
        self._router.close()


async def listen(config: DoorConfig, bridges: Bridges) -> Mc0Door:
    """An mc0 door. Raises `OptionError`, `BindFailed`."""
    return Mc0Door(config, bridges)
