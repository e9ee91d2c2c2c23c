"""The Reactive Streams door, on TCP or on WebSocket: a `Peer` for each connection."""

from __future__ import annotations

import asyncio

from mtl.doors.bridge import Bridge
from mtl.doors.config import DoorConfig
from mtl.doors.listening import bound, serve_tcp
from mtl.doors.reactive.link import Link
from mtl.doors.reactive.peer import Peer
from mtl.doors.reactive.session import Role
from mtl.doors.reactive.transports import Octets, Transport

DEFAULT_LISTEN = "127.0.0.1:5977"


class ReactiveDoor:
    """See the module. `endpoint` is HOST:PORT, or a ws: or wss: URL."""

    endpoint: str

    def __init__(self, config: DoorConfig, bridge: Bridge) -> None:
        self._config = config
        self._bridge = bridge
        self._close = _nothing
        self.peers: dict[asyncio.Task[None], Peer] = {}

    async def listen(self) -> None:
        """Begin. Raises `OptionError`, `BindFailed`."""
        if "://" in (self._config.listen or ""):
            from mtl.doors.reactive.over_websocket import listen  # noqa: PLC0415 TCP does not need the library

            websockets = await listen(self._config, self._serve)
            self._close, self.endpoint = websockets.close, websockets.endpoint
        else:
            server = await serve_tcp(self._config, DEFAULT_LISTEN, self._admit)
            self._close, self.endpoint = server.close, bound(server)

    async def _admit(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._serve(Octets(reader, writer))

    async def _serve(self, transport: Transport) -> None:
        link = Link(Role.SERVER, transport)
        if len(self.peers) >= self._config.max_sessions:
            link.session.say_goodbye(
                f"{self._config.max_sessions} clients are this door's limit; try again later"
            )
            link.flush()
            await link.shut()
            return
        peer = Peer(link, self._bridge)
        task = asyncio.current_task()
        assert task is not None
        self.peers[task] = peer
        try:
            await peer.serve()
        finally:
            del self.peers[task]

    async def stop(self) -> None:
        """Let nobody in; what was taken in is confirmed and told as long as the broker answers; then goodbye to all."""
        self._close()
        tasks = set(self.peers)
        try:
            await self._bridge.close()
            await asyncio.gather(*(peer.stop() for peer in self.peers.values()))
        finally:
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks)


def _nothing() -> None:
    """It does not listen yet."""


async def listen(config: DoorConfig, bridge: Bridge) -> ReactiveDoor:
    """A door on `config.listen`, HOST:PORT for TCP, ws://HOST:PORT or wss://HOST:PORT. Raises `OptionError`,
    `BindFailed`.
    """
    door = ReactiveDoor(config, bridge)
    await door.listen()
    return door
