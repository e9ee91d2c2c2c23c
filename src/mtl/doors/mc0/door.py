"""The mc0 door: one ROUTER, a `Peer` for each identity (MC0-01)."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from pathlib import Path

from mtl.doors.bridge import Bridge
from mtl.doors.config import DoorConfig
from mtl.doors.limits import MC0_HWM, MC0_INBOX, MC0_PROBE_S, MC0_QUEUED, MC0_WAITING
from mtl.doors.mc0.codec import BadMessage, decode, encode, error
from mtl.doors.mc0.peer import Peer
from mtl.limits import MAX_FRAME
from mtl.net.aio import AsyncRouter
from mtl.net.curve import read_pair

DEFAULT_LISTEN = "tcp://127.0.0.1:61616"
"""The port of the implementations that the document describes (MC0-30)."""


class Mc0Door:
    """See the module. `endpoint` is the ROUTER's."""

    def __init__(self, config: DoorConfig, bridge: Bridge) -> None:
        self._config = config
        self._bridge = bridge
        keys = read_pair(Path(config.curve_key_file)) if config.curve_key_file is not None else None
        self._router = AsyncRouter(
            config.listen or DEFAULT_LISTEN,
            hwm=MC0_HWM,
            max_frame=MAX_FRAME,
            max_queued=MC0_QUEUED,
            max_waiting=MC0_WAITING,
            curve_secret=keys[1] if keys is not None else None,
        )
        self.endpoint = self._router.endpoint
        self.peers: dict[bytes, Peer] = {}
        self._probed = -MC0_PROBE_S
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        while True:
            for identity, messages in (await self._router.receive(MC0_INBOX)).items():
                peer = self.peers.get(identity)
                if peer is None:
                    if len(self.peers) >= self._config.max_sessions and not self._made_room():
                        self._turn_away(identity, messages[0])
                        continue
                    peer = self._admit(identity)
                await peer.inbox.put(messages)

    def _admit(self, identity: bytes) -> Peer:
        def gone() -> None:
            if self.peers.get(identity) is peer:
                del self.peers[identity]

        peer = Peer(self._bridge, partial(self._router.send, identity), time.monotonic, gone)
        self.peers[identity] = peer
        return peer

    def _made_room(self) -> bool:
        """Whether somebody was there who is there no more; looked for once a while, since it costs a NOOP for each."""
        now = time.monotonic()
        if now < self._probed + MC0_PROBE_S:
            return False
        self._probed = now
        for peer in list(self.peers.values()):
            peer.probe()
        return len(self.peers) < self._config.max_sessions

    def _turn_away(self, identity: bytes, frames: list[bytes]) -> None:
        try:
            message, delimited = decode(frames)
        except BadMessage:
            return
        words = f"{self._config.max_sessions} clients are this door's limit; try again later"
        self._router.send(identity, encode(error(words, message.id), delimited=delimited))

    async def stop(self) -> None:
        """Read no more; what was taken in is still confirmed and answered as long as the broker does."""
        self._reading.cancel()
        await self._bridge.close()
        await asyncio.gather(*(peer.stop() for peer in list(self.peers.values())))
        self._router.close()


async def listen(config: DoorConfig, bridge: Bridge) -> Mc0Door:
    """An mc0 door on `config.listen`, tcp://HOST:PORT or ipc://PATH. Raises `BindFailed`."""
    return Mc0Door(config, bridge)
