"""The Reactive Streams door on TCP: a `Peer` for each connection."""

from __future__ import annotations

import asyncio

from mtl.doors.bridge import Bridge
from mtl.doors.config import DoorConfig, host_and_port
from mtl.doors.reactive.link import Link
from mtl.doors.reactive.peer import Peer
from mtl.doors.reactive.session import Role
from mtl.errors import OptionError

DEFAULT_LISTEN = "127.0.0.1:5977"


class ReactiveDoor:
    """See the module. `endpoint` is HOST:PORT."""

    endpoint: str

    def __init__(self, config: DoorConfig, bridge: Bridge) -> None:
        self._config = config
        self._bridge = bridge
        self._server: asyncio.Server | None = None
        self.peers: dict[asyncio.Task[None], Peer] = {}

    async def listen(self) -> None:
        """Begin. Raises `OptionError` for a place that cannot be listened on."""
        host, port = host_and_port(self._config.listen or DEFAULT_LISTEN)
        try:
            self._server = await asyncio.start_server(self._admit, host, port)
        except OSError as error:
            raise OptionError(f"cannot listen at {host}:{port}: {error.strerror or error}") from error
        name = self._server.sockets[0].getsockname()
        self.endpoint = f"[{name[0]}]:{name[1]}" if ":" in name[0] else f"{name[0]}:{name[1]}"

    async def _admit(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = Link(Role.SERVER, reader, writer)
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
        if self._server is not None:
            self._server.close()
        tasks = set(self.peers)
        try:
            await self._bridge.close()
            await asyncio.gather(*(peer.stop() for peer in self.peers.values()))
        finally:
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks)


async def listen(config: DoorConfig, bridge: Bridge) -> ReactiveDoor:
    """A door on `config.listen`, HOST:PORT. Raises `OptionError`."""
    door = ReactiveDoor(config, bridge)
    await door.listen()
    return door
