"""The Reactive Streams door, on TCP or on WebSocket: a `ReactivePeer` for each connection."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from mtl.doors.authentication import PeerAuthenticator
from mtl.doors.config import DoorConfig
from mtl.doors.failure_log import PeerAddress
from mtl.doors.listening import door_entrance, logged_in, serve_tcp, user_of
from mtl.doors.peer_messages import DoorRefusal, peer_message
from mtl.doors.peer_session import PeerSession
from mtl.doors.reactive.link import ReactiveLink
from mtl.doors.reactive.peer import ReactivePeer
from mtl.doors.reactive.session import ReactiveRole
from mtl.doors.reactive.transports import StreamTransport, Transport
from mtl.doors.users import Bridges

NAME = "reactive"


class ReactiveDoor:
    """See the module. `endpoint` is HOST:PORT, or a ws: or wss: URL."""

    endpoint: str

    def __init__(self, config: DoorConfig, bridges: Bridges) -> None:
        self._config = config
        self.bridges = bridges
        self._entrance = door_entrance()
        self._close = _close_nothing
        self.peers: dict[asyncio.Task[None], ReactivePeer] = {}

    async def listen(self) -> None:
        """Begin. Raises `OptionError`, `BindFailed`."""
        address = self._config.address(NAME)
        if address.transport == "ws":
            from mtl.doors.reactive.over_websocket import listen  # noqa: PLC0415 TCP does not need the library

            websockets = await listen(
                self._config,
                address,
                PeerAuthenticator(self._config, self.bridges.logins.check),
                self.bridges.admit,
                self._admit_websocket,
            )
            self._close, self.endpoint = websockets.close, websockets.endpoint
        else:
            server = await serve_tcp(self._config, address, self._entrance, self._admit_tcp)
            self._close, self.endpoint = server.close, server.endpoint

    async def _admit_tcp(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A connection with TLS's handshake done. The peer has logged in when it has sent octets, too."""
        # cancelled by `stop`: asyncio logs a cancelled task of a server as an error
        with suppress(asyncio.CancelledError):
            transport = StreamTransport(reader, writer)
            first = await transport.read()
            if not first:
                transport.abort()
                return
            link = ReactiveLink(ReactiveRole.SERVER, transport, first)
            try:
                user = user_of(self._config, writer)
                session = self.bridges.admit(PeerAddress.at(transport.peer, user))
            except DoorRefusal as unfit:
                link.session.send_goodbye(peer_message(unfit))
                link.flush()
                await link.close_transport()
                return
            logged_in(self._entrance, writer)
            transport.arriving = session.arriving()
            try:
                await self._serve(link, session)
            finally:
                transport.arriving.end()
                session.end()

    async def _admit_websocket(self, transport: Transport, session: PeerSession) -> None:
        await self._serve(ReactiveLink(ReactiveRole.SERVER, transport), session)

    async def _serve(self, link: ReactiveLink, session: PeerSession) -> None:
        peer = ReactivePeer(link, session)
        task = asyncio.current_task()
        assert task is not None
        self.peers[task] = peer
        try:
            await peer.serve()
        finally:
            del self.peers[task]

    async def stop(self) -> None:
        """Admit no more peers; confirm contents taken in while the broker answers; then say goodbye to all peers."""
        self._close()
        self._entrance.close()
        tasks = set(self.peers)
        try:
            await self.bridges.close()
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
