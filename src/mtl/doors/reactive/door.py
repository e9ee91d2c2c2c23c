"""The Reactive Streams door, on TCP or on WebSocket: a `ReactivePeer` for each connection."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from mtl.doors.authentication import PeerAuthenticator
from mtl.doors.bridge import Bridge
from mtl.doors.config import DoorConfig
from mtl.doors.failure_log import PeerAddress
from mtl.doors.listening import bound, serve_tcp, user_of
from mtl.doors.peer_messages import DoorRefusal, peer_message
from mtl.doors.reactive.link import ReactiveLink
from mtl.doors.reactive.peer import ReactivePeer
from mtl.doors.reactive.session import ReactiveRole
from mtl.doors.reactive.transports import StreamTransport, Transport
from mtl.doors.users import Bridges
from mtl.wire.control import OVERLOADED

NAME = "reactive"


class ReactiveDoor:
    """See the module. `endpoint` is HOST:PORT, or a ws: or wss: URL."""

    endpoint: str

    def __init__(self, config: DoorConfig, bridges: Bridges) -> None:
        self._config = config
        self._bridges = bridges
        self._close = _close_nothing
        self.peers: dict[asyncio.Task[None], ReactivePeer] = {}

    async def listen(self) -> None:
        """Begin. Raises `OptionError`, `BindFailed`."""
        place = self._config.place(NAME)
        if place.transport == "ws":
            from mtl.doors.reactive.over_websocket import listen  # noqa: PLC0415 TCP does not need the library

            websockets = await listen(
                self._config,
                place,
                PeerAuthenticator(self._config, self._bridges.logins.check),
                self._over_websocket,
            )
            self._close, self.endpoint = websockets.close, websockets.endpoint
        else:
            server = await serve_tcp(self._config, place, self._admit)
            self._close, self.endpoint = server.close, bound(server)

    async def _admit(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # cancelled by `stop`: asyncio logs a cancelled task of a server as an error
        with suppress(asyncio.CancelledError):
            await self._serve(StreamTransport(reader, writer), partial(user_of, self._config, writer))

    async def _over_websocket(self, transport: Transport, user: str | None) -> None:
        await self._serve(transport, lambda: user)

    async def _serve(self, transport: Transport, user: Callable[[], str | None]) -> None:
        link = ReactiveLink(ReactiveRole.SERVER, transport)
        try:
            known = user()
            bridge = self._admitted(known)
        except DoorRefusal as unfit:
            link.session.send_goodbye(peer_message(unfit))
            link.flush()
            await link.close_transport()
            return
        peer = ReactivePeer(link, bridge, PeerAddress.at(transport.peer, known))
        task = asyncio.current_task()
        assert task is not None
        self.peers[task] = peer
        try:
            await peer.serve()
        finally:
            del self.peers[task]

    def _admitted(self, user: str | None) -> Bridge:
        if len(self.peers) >= self._config.max_sessions:
            words = f"{self._config.max_sessions} clients are this door's limit; try again later"
            raise DoorRefusal(503, OVERLOADED, words)
        return self._bridges.of(user)

    async def stop(self) -> None:
        """Admit no more peers; confirm contents taken in while the broker answers; then say goodbye to all peers."""
        self._close()
        tasks = set(self.peers)
        try:
            await self._bridges.close()
            await asyncio.gather(*(peer.stop() for peer in self.peers.values()))
        except asyncio.CancelledError:  # the time is over
            for peer in self.peers.values():
                peer.abort()
            raise
        finally:
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks)


def _close_nothing() -> None:
    """Close a server that does not listen yet."""


async def listen(config: DoorConfig, bridges: Bridges) -> ReactiveDoor:
    """A Reactive Streams door. Raises `OptionError`, `BindFailed`."""
    door = ReactiveDoor(config, bridges)
    await door.listen()
    return door
