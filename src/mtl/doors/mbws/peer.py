"""One WebSocket at the MBWS door: sends its client's messages to the broker and the contents of its addresses back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import suppress

from websockets.frames import CloseCode

from mtl.doors.limits import MBWS_CONNECT_S, WS_CLOSE_S
from mtl.doors.mbws.codec import Acknowledge, Connect, Frame, Message, NotText
from mtl.doors.mbws.connection_records import CONNECTIONS, restore
from mtl.doors.mbws.connection_store import ConnectionStore
from mtl.doors.mbws.intake import RESERVED_RESOURCE, MbwsIntake
from mtl.doors.mbws.recovery import Client, Connections, KnownConnection, new_name
from mtl.doors.mbws.session import MbwsRole, MbwsSession, MbwsState
from mtl.doors.mbws.subscription_query import SubscriptionQuery, parse
from mtl.doors.peer_session import PeerSession, Subscription
from mtl.doors.websocket import Violation
from mtl.doors.websocket_server import DoorSocket
from mtl.errors import Malformed, Unreachable
from mtl.limits import MAX_CONTENT


class PeerConnection(KnownConnection):
    """A connection with its state at the door. `holder` is its current or last session."""

    def __init__(
        self,
        name: str,
        client: Client,
        query: SubscriptionQuery,
        session: PeerSession,
        holder: MbwsPeer,
        received: int = 0,
    ) -> None:
        super().__init__(name, client, query.addresses)
        self.intake = MbwsIntake(session, received)
        self.holder = holder
        self.turn = asyncio.Lock()
        """Serializes reconnects: a client may send two at once."""
        self.stored = False
        """Whether it was stored, or is to be. It is stored once, as another door may have claimed it by then."""


class MbwsPeer:
    """Handles one WebSocket during `serve`. `retain` gets a connection that waits for its client."""

    def __init__(
        self,
        socket: DoorSocket,
        connections: Connections[PeerConnection],
        store: ConnectionStore,
        retain: Callable[[PeerConnection], Awaitable[None]],
    ) -> None:
        self._socket = socket
        self._connections = connections
        self._store = store
        self._retain = retain
        self._client = Client(socket.origin, socket.session.peer.user)
        self._query = SubscriptionQuery()
        self._session: MbwsSession
        self._connection: PeerConnection | None = None
        self._acked = 0
        self._room = asyncio.Event()
        self._turn = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._error: BaseException | None = None
        self._superseded = False
        self._ended = asyncio.Event()

    async def serve(self) -> None:
        """Handle the session until the WebSocket ends, or `stop_receiving`."""
        patience = asyncio.get_running_loop().call_later(MBWS_CONNECT_S, self._handle_timeout)
        try:
            await self._receive()
        except Exception as failed:  # noqa: BLE001 a bug must not leave a peer without an answer
            self._end(failed)
        finally:
            patience.cancel()
            await self._cancel_tasks()
            self._ended.set()
        await self._close()

    def stop_receiving(self) -> None:
        """Stop receiving. Messages taken in are acknowledged, and the client can reconnect."""
        self._socket.stop_receiving()

    async def supersede(self) -> None:
        """End at once: another session took the connection over."""
        self._superseded = True
        self._socket.drop()
        await self._ended.wait()

    # --- messages of the client -----------------------------------------------------------------------------

    async def _receive(self) -> None:
        socket = self._socket
        self._query = query = parse(socket.request.path)
        if CONNECTIONS in query.addresses:
            raise RESERVED_RESOURCE
        self._session = MbwsSession(
            MbwsRole.SERVER, socket.subprotocol, query.kind, characters=query.characters
        )
        if self._session.light:
            await self._begin_subscriptions(self._new_connection())
        while self._error is None and (messages := await socket.messages()):
            await self._handle_messages(messages)

    async def _handle_messages(self, messages: Iterable[str | bytes]) -> None:
        """Handle messages that arrived together; those before an invalid one count."""
        together: list[Message] = []
        try:
            for message in messages:
                frame = self._parse(message)
                if isinstance(frame, Message):
                    together.append(frame)
                elif frame is not None:
                    together = await self._forward(together)
                    await self._handle_frame(frame)
        finally:
            await self._forward(together)

    def _parse(self, message: str | bytes) -> Frame | None:
        try:
            frame = self._session.received(message)
        except NotText as wrong:
            raise Violation(CloseCode.INVALID_DATA, str(wrong)) from wrong
        if isinstance(frame, Message) and len(frame.body) > MAX_CONTENT:
            raise Violation(CloseCode.MESSAGE_TOO_BIG, f"a body has {MAX_CONTENT} octets at most")
        return frame

    async def _forward(self, messages: list[Message]) -> list[Message]:
        """Send the collected messages; returns the empty list that is left."""
        if messages:
            assert self._connection is not None
            await self._connection.intake.send(messages)
        return []

    async def _handle_frame(self, frame: Connect | Acknowledge) -> None:
        if isinstance(frame, Connect):
            await self._connect(frame)
        else:
            assert self._connection is not None
            self._connection.outgoing.acknowledged(frame.sequence)
            self._room.set()

    # --- connections ----------------------------------------------------------------------------------------

    async def _connect(self, request: Connect) -> None:
        """Begin a new connection, or continue the named one if that is possible (MBWS-23, 24)."""
        if request.name and len(request.numbers) != 3:
            raise Malformed(f"a reconnect has 3 numbers, not {len(request.numbers)}")
        if self._connection is not None:
            await self._cancel_tasks()
            self._connections.clear(self._connection)
        connection = self._connections.find(request.name, self._client) or await self._find_stored(
            request.name
        )
        if connection is not None and await self._recover(connection, request):
            numbers: tuple[int, ...] = (connection.intake.confirmed,)
        else:
            connection, numbers = self._new_connection(), ()
            self._connections.add(connection)
        await self._begin_subscriptions(connection, Connect(connection.name, numbers))

    def _new_connection(self) -> PeerConnection:
        return PeerConnection(new_name(), self._client, self._query, self._socket.session, self)

    async def _find_stored(self, name: str) -> PeerConnection | None:
        """The connection, if a door stored it. Concurrent reconnects find the same one."""
        if not name:
            return None
        async with self._store.turn:
            connection = self._connections.find(name, self._client)
            if connection is None and (record := await self._store.claim(name, self._client)) is not None:
                connection = PeerConnection(
                    name, self._client, self._query, self._socket.session, self, record.received
                )
                restore(record, connection)
                self._connections.add(connection)
            return connection

    async def _recover(self, connection: PeerConnection, request: Connect) -> bool:
        """Take a connection over from a session that may not have noticed its loss yet. False: the connection has
        ended.
        """
        async with connection.turn:
            if connection.holder is not self:
                await connection.holder.supersede()
            connection.holder = self
            self._connections.recovered(connection)
            # SSLR has to count the messages under way, or the client would repeat them.
            await connection.intake.wait_idle()
        if connection.intake.error is None and connection.can_continue(request, connection.intake.confirmed):
            connection.resume(request.numbers[0])
            return True
        self._connections.clear(connection)
        return False

    async def _begin_subscriptions(self, connection: PeerConnection, reply: Connect | None = None) -> None:
        """Begin the subscriptions, at the latest from now on; then send the reply."""
        self._connection = connection
        self._acked = connection.intake.confirmed
        subscriptions: list[tuple[str, Subscription]] = []
        try:
            for address, place in connection.reading.items():
                subscription = await self._socket.session.subscribe(
                    address, place.start, place.incarnation, end=self._socket.drop
                )
                subscriptions.append((address, subscription))
                position, place.incarnation = subscription.place
                assert position is not None
                place.start = position
            if reply is not None:
                await self._socket.send(self._session.to_message(reply))
        except BaseException:  # also when cancelled: the subscriptions have no other owner yet
            for _, subscription in subscriptions:
                await subscription.close()
            raise
        self._start_task(self._acknowledge_confirmed(connection))
        for address, subscription in subscriptions:
            self._start_task(self._deliver(connection, address, subscription))

    async def _acknowledge_confirmed(self, connection: PeerConnection) -> None:
        """Acknowledge messages as they become durable, as many at once as there are (MBWS-18, 19)."""
        while connection.intake.error is None:
            await connection.intake.changed.wait()
            connection.intake.changed.clear()
            await self._acknowledge(connection)
        raise connection.intake.error

    async def _acknowledge(self, connection: PeerConnection) -> None:
        if connection.intake.confirmed > self._acked and not self._session.light:
            self._acked = connection.intake.confirmed
            await self._socket.send(self._session.to_message(Acknowledge(self._acked)))

    async def _deliver(self, connection: PeerConnection, address: str, subscription: Subscription) -> None:
        """Send an address's contents, at the pace of the window and the client."""
        to, table = self._session.to_messages(address), None
        try:
            while contents := await subscription.some():
                messages = []
                for content in contents:
                    if content.table != table:
                        to.set_properties(content.properties)
                        table = content.table
                    messages.append(to.message(content.body, content.sequence))
                at = 0
                while at < len(messages):
                    async with self._turn:
                        end = at + await self._wait_for_room(connection, len(messages) - at)
                        if not self._session.light:
                            connection.sent(address, [content.sequence for content in contents[at:end]])
                        await self._socket.send_all(messages[at:end])
                    at = end
        finally:
            await subscription.close()

    async def _wait_for_room(self, connection: PeerConnection, wanted: int) -> int:
        """Wait for room; returns how many of `wanted` messages may be sent now."""
        if self._session.light:
            return wanted
        while not connection.outgoing.room:
            self._room.clear()
            await self._room.wait()
        return min(wanted, connection.outgoing.room)

    # --- the end --------------------------------------------------------------------------------------------

    def _start_task(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._handle_task_end)

    def _handle_task_end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._end(error)

    def _handle_timeout(self) -> None:
        if self._session.state is MbwsState.WAITING:
            self._end(Malformed(f"no Connect within {MBWS_CONNECT_S:g} s"))

    def _end(self, error: BaseException) -> None:
        """Stop receiving because of an error."""
        if self._error is None and not isinstance(error, ConnectionResetError):
            self._error = error
        self._socket.stop_receiving()

    async def _cancel_tasks(self) -> None:
        """Deliver and acknowledge nothing more."""
        tasks = set(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _close(self) -> None:
        """Close the connection with its WebSocket, or let it wait for its client (MBWS-11, 21)."""
        connection, error = self._connection, self._error
        if self._superseded:
            self._socket.drop()
        elif connection is None:
            await self._socket.refuse(error or Malformed("no Connect"))
        elif error is None and self._socket.closed_by_peer:
            self._connections.clear(connection)
            await connection.intake.wait_idle()
            if connection.intake.error is None:
                self._socket.answer_close()
            else:
                self._socket.drop()
        elif error is None or (isinstance(error, Unreachable) and connection.intake.error is None):
            # The WebSocket was lost, the door stops or the broker is unreachable: none of these is a Close.
            self._connections.failed(connection)
            await connection.intake.wait_idle()
            with suppress(ConnectionResetError, TimeoutError):
                async with asyncio.timeout(WS_CLOSE_S):
                    await self._acknowledge(connection)
            if not self._session.light:
                await self._retain(connection)
            await self._socket.end_without_close()
        else:
            self._connections.clear(connection)
            await self._socket.refuse(error)
